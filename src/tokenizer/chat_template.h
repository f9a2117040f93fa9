#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/template_value.h"

namespace kvasir {

// A model's chat template (Jinja, as Hugging Face's apply_chat_template sets it up: trim_blocks,
// lstrip_blocks, loop controls, tojson without HTML escaping, raise_exception, strftime_now). Parsed once;
// rendering is const and thread-safe, with caps on steps, output bytes and recursion, so a hostile template
// costs a bounded time.
class ChatTemplate {
 public:
  struct Limits {
    uint64_t max_steps = 2'000'000;
    size_t max_output_bytes = size_t{8} << 20;
    uint32_t max_depth = 128;
  };

  // Errors carry the template's line number.
  static Result<ChatTemplate> parse(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // A run of output that came wholly from the template's own text, or wholly from the caller's values. Only
  // the former may contain control tokens.
  struct Part {
    std::string text;
    bool from_template = false;
  };

  // `context` holds messages, tools, add_generation_prompt, bos_token, eos_token and the caller's extra
  // variables; `now` is what strftime_now formats (seconds since the epoch, UTC). A template's own
  // raise_exception and every failure of rendering are kInvalidArgument with the template's message.
  Result<std::vector<Part>> render(const TemplateValue& context, int64_t now, const Limits& limits) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir
