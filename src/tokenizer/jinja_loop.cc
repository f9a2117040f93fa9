#include "tokenizer/jinja_loop.h"

#include <algorithm>

namespace kvasir::jinja {

std::optional<Value> Loop::attribute(Runtime&, std::string_view name) {
  const auto index = static_cast<int64_t>(index_), size = static_cast<int64_t>(items_.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(int64_t{1});  // only recursive loops go deeper
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem")
    return index_ > 0 ? items_[index_ - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index_ + 1 < items_.size() ? items_[index_ + 1] : Value::undefined("there is no next item");
  if (name == "cycle") return bind(&Loop::cycle, Value(Value::ObjectPtr(handle_.lock())), "cycle");
  if (name == "changed") return bind(&Loop::changed, Value(Value::ObjectPtr(handle_.lock())), "changed");
  return std::nullopt;
}

Value Loop::cycle(Runtime&, const Value& self, const CallArgs& args) {
  if (args.positional.empty()) fail("no items for cycling given");
  return args.positional[static_cast<Loop&>(*self.object()).index_ % args.positional.size()];
}

Value Loop::changed(Runtime& runtime, const Value& self, const CallArgs& args) {
  auto& loop = static_cast<Loop&>(*self.object());
  const auto same = [&](const Value& a, const Value& b) { return equal(a, b, runtime.budget); };
  if (loop.last_changed_ && std::equal(loop.last_changed_->begin(), loop.last_changed_->end(),
                                       args.positional.begin(), args.positional.end(), same))
    return Value(false);
  for (const Value& v : args.positional)
    if (v.object()) fail("loop.changed() takes plain values");  // it could come to hold itself
  loop.last_changed_ = args.positional;
  return Value(true);
}

}  // namespace kvasir::jinja
