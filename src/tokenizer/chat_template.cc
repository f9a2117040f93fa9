#include "tokenizer/chat_template.h"

#include <fmt/format.h>

#include <utility>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"

namespace kvasir {

using jinja::Budget;
using jinja::Dict;
using jinja::List;
using jinja::Text;
using jinja::Value;

struct ChatTemplate::Impl {
  jinja::Block block;
};

namespace {

// Turns the caller's values into the interpreter's. What a caller gives is not the template's to pay for:
// only its nesting is bounded.
class Importer {
 public:
  Value operator()(const TemplateValue& v, size_t depth = 0) {
    if (depth > jinja::kMaxValueDepth)
      jinja::fail(fmt::format("a value nests deeper than {}", jinja::kMaxValueDepth));
    if (const auto* s = std::get_if<std::string>(&v.data())) return Value(Text(*s, v.is_trusted()));
    if (const auto* b = std::get_if<bool>(&v.data())) return Value(*b);
    if (const auto* i = std::get_if<int64_t>(&v.data())) return Value(*i);
    if (const auto* d = std::get_if<double>(&v.data())) return Value(*d);
    if (const auto* a = std::get_if<std::shared_ptr<TemplateValue::Array>>(&v.data())) {
      std::vector<Value> items;
      for (const TemplateValue& item : **a) items.push_back((*this)(item, depth + 1));
      return make_list(budget_, std::move(items));
    }
    if (const auto* o = std::get_if<std::shared_ptr<TemplateValue::Object>>(&v.data())) {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : **o) dict->set(Value(Text(key)), (*this)(value, depth + 1), budget_);
      return Value(Value::DictPtr(std::move(dict)));
    }
    return Value::none();
  }

 private:
  Budget budget_{UINT64_MAX, SIZE_MAX};
};

Status to_status(const jinja::Error& e) {
  return invalid_argument(e.message);
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->block = jinja::parse_template(source);
    return ChatTemplate(std::move(impl));
  } catch (const jinja::Error& e) {
    return invalid_argument(fmt::format("chat template, line {}: {}", e.line, e.message));
  }
}

Result<std::vector<ChatTemplate::Part>> ChatTemplate::render(const TemplateValue& context, int64_t now,
                                                             const Limits& limits) const {
  const auto* object = std::get_if<std::shared_ptr<TemplateValue::Object>>(&context.data());
  if (!object) return invalid_argument("a chat template's context must be an object");
  try {
    Importer import;
    std::vector<std::pair<std::string_view, Value>> variables;
    for (const auto& [name, value] : **object) variables.emplace_back(name, import(value));
    jinja::Interpreter interpreter(
        std::move(variables),
        {Budget(limits.max_steps, limits.max_output_bytes), now, limits.max_depth, 0, {}});
    const Text text = interpreter.render(impl_->block);
    std::vector<Part> parts;
    text.for_each_run(0, text.size(), [&](std::string_view run, bool from_template) {
      parts.push_back({std::string(run), from_template});
    });
    return parts;
  } catch (const jinja::Error& e) {
    return to_status(e);
  }
}

}  // namespace kvasir
