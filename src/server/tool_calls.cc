#include "server/tool_calls.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "server/json_input.h"
#include "server/request_id.h"

namespace kvasir {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kSpace = " \t\r\n";

// Length of the longest end of `text` that begins `marker`.
size_t partial_match(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == marker.substr(0, n)) return n;
  }
  return 0;
}

constexpr std::string_view kFence = "```";

std::string_view without_space_in_front(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

// Takes `expected` off the front of *text. False when it is not there; what ends early may still become it,
// and leaves *text empty.
bool take(std::string_view expected, std::string_view* text) {
  const size_t n = std::min(expected.size(), text->size());
  if (text->substr(0, n) != expected.substr(0, n)) return false;
  text->remove_prefix(n);
  return true;
}

// Whether the text begins a call without tags, or may still do so.
bool begins_bare_call(std::string_view text) {
  text = without_space_in_front(text);
  if (text.starts_with('`')) {
    if (!take(kFence, &text)) return false;
    if (text.starts_with('j') && !take("json", &text)) return false;
    text = without_space_in_front(text);
  }
  if (!take("{", &text)) return false;
  text = without_space_in_front(text);
  return take("\"name\"", &text);
}

// What stands between the fences, or the text itself.
std::string_view without_fences(std::string_view text) {
  text = without_space_in_front(text);
  if (!take(kFence, &text)) return text;
  take("json", &text);
  const size_t end = text.rfind(kFence);
  const bool nothing_after =
      end != std::string_view::npos && without_space_in_front(text.substr(end + 3)).empty();
  return nothing_after ? text.substr(0, end) : text;
}

}  // namespace

std::optional<ToolCall> parse_tool_call(std::string_view block) {
  const auto parsed = parse_json(block);
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  const boost::json::value* name = parsed->get_object().if_contains("name");
  const boost::json::value* arguments = parsed->get_object().if_contains("arguments");
  if (name == nullptr || !name->is_string() || name->get_string().empty()) return std::nullopt;
  ToolCall call;
  call.name = std::string(name->get_string());
  if (arguments == nullptr || arguments->is_null())
    call.arguments = "{}";
  else if (arguments->is_string())
    call.arguments = std::string(arguments->get_string());
  else
    call.arguments = boost::json::serialize(*arguments);
  return call;
}

// White space between blocks belongs to the markup, not to the text.
void ToolCallParser::release(std::string_view text, std::string* content) {
  if (found_ > 0 && text.find_first_not_of(kSpace) == std::string_view::npos) return;
  *content += text;
}

bool ToolCallParser::take_block(std::string_view block, std::vector<ToolCall>* calls) {
  auto call = parse_tool_call(block);
  if (!call) return false;
  ++found_;
  if (found_ > max_calls_) return true;
  call->id = random_id("call_");
  calls->push_back(std::move(*call));
  return true;
}

bool ToolCallParser::take_bare_call(std::vector<ToolCall>* calls) {
  const std::string_view text = without_fences(held_);
  const auto call = parse_tool_call(text);
  if (!call || std::find(tools_.begin(), tools_.end(), call->name) == tools_.end()) return false;
  take_block(text, calls);
  held_.clear();
  return true;
}

void ToolCallParser::push(std::string_view text, std::string* content, std::vector<ToolCall>* calls) {
  held_ += text;
  may_be_bare_ = may_be_bare_ && begins_bare_call(held_);
  if (!may_be_bare_) read_blocks(content, calls);
}

void ToolCallParser::read_blocks(std::string* content, std::vector<ToolCall>* calls) {
  while (true) {
    if (!in_block_) {
      const size_t open = held_.find(kOpen);
      if (open == std::string::npos) break;
      release(std::string_view(held_).substr(0, open), content);
      held_.erase(0, open + kOpen.size());
      in_block_ = true;
    }
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) return;
    const std::string block = held_.substr(0, close);
    if (!take_block(block, calls)) release(std::string(kOpen) + block + std::string(kClose), content);
    held_.erase(0, close + kClose.size());
    in_block_ = false;
  }
  const size_t keep = partial_match(held_, kOpen);
  release(std::string_view(held_).substr(0, held_.size() - keep), content);
  held_.erase(0, held_.size() - keep);
}

void ToolCallParser::finish(std::string* content, std::vector<ToolCall>* calls) {
  if (std::exchange(may_be_bare_, false)) {
    if (take_bare_call(calls)) return;
    read_blocks(content, calls);
  }
  if (in_block_ && !take_block(held_, calls)) release(std::string(kOpen) + held_, content);
  if (!in_block_) release(held_, content);
  held_.clear();
  in_block_ = false;
}

}  // namespace kvasir
