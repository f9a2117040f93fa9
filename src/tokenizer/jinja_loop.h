#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tokenizer/jinja_library.h"

namespace kvasir::jinja {

// The `loop` of a for statement.
class Loop : public Object {
 public:
  explicit Loop(std::vector<Value> items) : items_(std::move(items)), depth_(nested_depth(items_)) {}

  std::string_view type_name() const override { return "LoopContext"; }
  size_t depth() const override { return depth_; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;

  const std::vector<Value>& items() const { return items_; }
  void go_to(size_t index) { index_ = index; }
  void set_handle(const std::shared_ptr<Loop>& self) { handle_ = self; }

 private:
  static Value cycle(Runtime& runtime, const Value& self, const CallArgs& args);
  static Value changed(Runtime& runtime, const Value& self, const CallArgs& args);

  std::vector<Value> items_;
  size_t depth_;
  size_t index_ = 0;
  std::optional<std::vector<Value>> last_changed_;
  std::weak_ptr<Loop> handle_;  // itself
};

}  // namespace kvasir::jinja
