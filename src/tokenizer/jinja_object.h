#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace kvasir::jinja {

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// What a rendering shares with the functions it calls.
struct Runtime {
  Budget budget;
  int64_t now = 0;  // seconds since the epoch
  uint32_t max_depth = 0;
  uint32_t depth = 0;  // macro calls now inside each other
  // Objects whose attributes may come to point at themselves; emptied when the rendering ends.
  std::vector<std::shared_ptr<class Namespace>> namespaces;
};

// A value with behaviour: functions, macros, `loop`, namespaces.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual size_t depth() const { return 0; }  // of the values it holds for good, plus one
  virtual std::optional<Value> attribute(Runtime&, std::string_view) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Runtime&, const CallArgs&) {
    fail("'" + std::string(type_name()) + "' object is not callable");
  }
};

// namespace(): the one thing a template can change.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
  void set(Runtime& runtime, const Value& name, Value value) {
    values_.set(name, std::move(value), runtime.budget);
  }
  void clear() { values_ = Dict(); }

 private:
  Dict values_;
};

// One more than the deepest of the values. Throws beyond kMaxValueDepth, so that values can be walked and
// freed by recursion.
size_t nested_depth(const std::vector<Value>& values);

// Arguments by parameter name, as a Python signature binds them.
class Params {
 public:
  // Throws for too many, unknown and doubled arguments.
  Params(const CallArgs& args, std::string_view function, std::initializer_list<std::string_view> names);

  const Value* operator[](size_t i) const { return slots_[i]; }  // null when not given
  const Value& required(size_t i) const;
  bool flag(size_t i, bool fallback) const { return slots_[i] ? slots_[i]->truthy() : fallback; }
  int64_t integer(size_t i, int64_t fallback) const;  // null counts as not given; throws unless an int
  const Text* text(size_t i) const;                   // null when not given or None; throws unless a string

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> slots_;
};

}  // namespace kvasir::jinja
