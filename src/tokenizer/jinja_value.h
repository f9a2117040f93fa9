#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/jinja_budget.h"
#include "tokenizer/jinja_text.h"

namespace kvasir::jinja {

class List;
class Dict;
class Object;

// A value of a running template, with Python's types and meanings. Cheap to copy; what it points to does not
// change (the sandbox is immutable), except objects.
class Value {
 public:
  struct Undefined {
    std::shared_ptr<const std::string> why;  // what an operation on it reports
  };
  struct None {};
  using TextPtr = std::shared_ptr<const Text>;
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<const Dict>;
  using ObjectPtr = std::shared_ptr<Object>;

  Value() : data_(Undefined{}) {}
  static Value undefined(std::string why);
  static Value none() { return Value(None{}); }
  explicit Value(None n) : data_(n) {}
  explicit Value(bool b) : data_(b) {}
  explicit Value(int64_t i) : data_(i) {}
  explicit Value(double d) : data_(d) {}
  explicit Value(TextPtr t) : data_(std::move(t)) {}
  explicit Value(Text t) : data_(std::make_shared<const Text>(std::move(t))) {}
  explicit Value(ListPtr l) : data_(std::move(l)) {}
  explicit Value(DictPtr d) : data_(std::move(d)) {}
  explicit Value(ObjectPtr o) : data_(std::move(o)) {}
  Value(const char*) = delete;

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_number() const { return is<bool>() || is<int64_t>() || is<double>(); }

  const Text* text() const { return pointed<TextPtr>(); }
  const List* list() const { return pointed<ListPtr>(); }
  const Dict* dict() const { return pointed<DictPtr>(); }
  Object* object() const {
    const auto* p = std::get_if<ObjectPtr>(&data_);
    return p ? p->get() : nullptr;
  }
  std::optional<int64_t> integer() const;  // of an int or bool
  std::optional<double> number() const;    // of an int, bool or float

  // Why an undefined value is undefined.
  std::string why() const;
  // Throws that, when undefined.
  void require_defined() const;

  bool truthy() const;
  size_t depth() const;                // of nested containers; 0 for others
  std::string_view type_name() const;  // Python's: "str", "NoneType", ...

 private:
  template <class P>
  const typename P::element_type* pointed() const {
    const auto* p = std::get_if<P>(&data_);
    return p ? p->get() : nullptr;
  }
  std::variant<Undefined, None, bool, int64_t, double, TextPtr, ListPtr, DictPtr, ObjectPtr> data_;
};

inline constexpr size_t kMaxValueDepth = 128;

// Python's ordered collections and iterators.
class List {
 public:
  enum class Kind : uint8_t {
    kList,
    kTuple,
    kRange,
    kView,       // dict.keys(), .values(), .items(): has a length, no subscripts
    kGenerator,  // what most filters give: no length, always true, gives each item once
  };
  List(Kind kind, std::vector<Value> items, std::string label = "");

  const Kind kind;
  const std::vector<Value> items;
  const std::string label;  // of a range or view: how it prints
  const size_t depth;
  mutable size_t taken = 0;  // items a generator has given

  bool indexable() const { return kind != Kind::kView && kind != Kind::kGenerator; }
};

// Python's dict: keeps insertion order; keys are strings, numbers, None, tuples.
class Dict {
 public:
  using Entries = std::vector<std::pair<Value, Value>>;

  const Entries& entries() const { return entries_; }
  size_t depth() const { return depth_; }
  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value, Budget& budget);  // while building

 private:
  const Value* find_canonical(const std::string& key) const;
  std::optional<size_t> place(const std::string& key) const;

  Entries entries_;
  std::map<std::string, size_t> places_;  // canonical key to entry
  size_t depth_ = 1;
};

// A text under which equal hashable values, and only those, are the same ("1", "1.0" and "True" are). Throws
// for lists and dicts.
std::string canonical_key(const Value& value, Budget& budget);

// Python's ==.
bool equal(const Value& a, const Value& b, Budget& budget);
// Python's < on numbers, strings, lists and tuples; throws for other pairs.
bool less(const Value& a, const Value& b, Budget& budget);

Value make_list(Budget& budget, std::vector<Value> items, List::Kind kind = List::Kind::kList,
                std::string label = "");
Value make_text(Budget& budget, Text text);
Value make_text(Budget& budget, std::string_view bytes);

// The items that iterating over a value gives: list items, dict keys, characters; nothing for undefined. Uses
// generators up. Throws for what cannot be iterated.
std::vector<Value> iterate(const Value& value, Budget& budget);

}  // namespace kvasir::jinja
