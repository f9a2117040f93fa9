#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir {

struct ToolCall {
  std::string id;  // "call_..."
  std::string name;
  std::string arguments;  // JSON text
};

// Takes `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` blocks (as Qwen and Hermes models write
// them) out of an answer as it comes in. What is released never changes: text that may begin a block is held
// back until that is refuted, a block until it ends. A block that holds no such object stays text.
//
// Smaller models leave the tags out: an answer that is nothing but such an object, bare or fenced as ```json,
// and names a tool that was offered, is a call too.
class ToolCallParser {
 public:
  // tools: the names of what was offered. max_calls: further calls are dropped (parallel_tool_calls false is
  // 1).
  ToolCallParser(std::vector<std::string> tools, size_t max_calls)
      : tools_(std::move(tools)), max_calls_(max_calls) {}

  // Adds text of the answer; appends what it releases.
  void push(std::string_view text, std::string* content, std::vector<ToolCall>* calls);

  // The answer has ended: releases what was held back. A block without its end counts if its object is whole.
  void finish(std::string* content, std::vector<ToolCall>* calls);

  bool any() const { return found_ > 0; }

 private:
  void release(std::string_view text, std::string* content);
  bool take_block(std::string_view block, std::vector<ToolCall>* calls);
  bool take_bare_call(std::vector<ToolCall>* calls);
  void read_blocks(std::string* content, std::vector<ToolCall>* calls);

  std::vector<std::string> tools_;
  size_t max_calls_;
  size_t found_ = 0;
  bool may_be_bare_ = true;  // all so far may be a call without tags; nothing was released
  bool in_block_ = false;
  std::string held_;
};

// The call that a block's text stands for, without an id; nullopt when it is none.
std::optional<ToolCall> parse_tool_call(std::string_view block);

}  // namespace kvasir
