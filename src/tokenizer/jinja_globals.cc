// Functions that every template has.

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_print.h"

namespace kvasir::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // the sandbox's

Value range(Runtime& rt, const Value&, const CallArgs& args) {
  const Params p(args, "range", {"start", "stop", "step"});
  const bool one = !p[1];
  p.required(0);
  const int64_t start = one ? 0 : p.integer(0, 0), stop = one ? p.integer(0, 0) : p.integer(1, 0);
  const int64_t step = p.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  const auto span = static_cast<__int128>(stop) - start;
  const __int128 count =
      (span > 0) != (step > 0) || span == 0 ? 0 : (span + step + (step > 0 ? -1 : 1)) / step;
  if (count > kMaxRange)
    fail(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
  std::vector<Value> items;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) items.emplace_back(start + i * step);
  std::string label = step == 1 ? fmt::format("range({}, {})", start, stop)
                                : fmt::format("range({}, {}, {})", start, stop, step);
  return make_list(rt.budget, std::move(items), List::Kind::kRange, std::move(label));
}

// The entries of a dict, or of pairs, then the named arguments.
Dict::Entries entries_of(Runtime& rt, const CallArgs& args) {
  Dict::Entries out;
  if (args.positional.size() > 1) fail("dict() takes at most one positional argument");
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    from.require_defined();
    if (const Dict* d = from.dict()) {
      out = d->entries();
    } else {
      for (const Value& pair : iterate(from, rt.budget)) {
        auto parts = iterate(pair, rt.budget);
        if (parts.size() != 2) fail("dict() needs pairs");
        out.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) out.emplace_back(Value(Text(name)), value);
  return out;
}

Value dict(Runtime& rt, const Value&, const CallArgs& args) {
  auto d = std::make_shared<Dict>();
  for (auto& [key, value] : entries_of(rt, args)) d->set(key, value, rt.budget);
  return Value(Value::DictPtr(std::move(d)));
}

Value make_namespace(Runtime& rt, const Value&, const CallArgs& args) {
  rt.budget.step(8);
  auto ns = std::make_shared<Namespace>();
  rt.namespaces.push_back(ns);
  for (auto& [key, value] : entries_of(rt, args)) ns->set(rt, key, value);
  return Value(Value::ObjectPtr(std::move(ns)));
}

class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)), depth_(nested_depth(items_)) {}
  std::string_view type_name() const override { return "Cycler"; }
  size_t depth() const override { return depth_; }
  std::optional<Value> attribute(Runtime&, std::string_view name) override {
    if (name == "current") return items_[pos_];
    if (name == "next") return bind(&Cycler::step, Value(handle.lock()), "next");
    if (name == "reset") return bind(&Cycler::restart, Value(handle.lock()), "reset");
    return std::nullopt;
  }
  std::weak_ptr<Object> handle;  // itself

 private:
  static Value step(Runtime&, const Value& self, const CallArgs&) {
    auto& c = static_cast<Cycler&>(*self.object());
    Value v = c.items_[c.pos_];
    c.pos_ = (c.pos_ + 1) % c.items_.size();
    return v;
  }
  static Value restart(Runtime&, const Value& self, const CallArgs&) {
    static_cast<Cycler&>(*self.object()).pos_ = 0;
    return Value::none();
  }
  std::vector<Value> items_;
  size_t depth_;
  size_t pos_ = 0;
};

Value make_cycler(Runtime& rt, const Value&, const CallArgs& args) {
  if (args.positional.empty()) fail("cycler() needs at least one item");
  rt.budget.values(args.positional.size());
  auto c = std::make_shared<Cycler>(args.positional);
  c->handle = c;
  return Value(Value::ObjectPtr(std::move(c)));
}

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Runtime&, const CallArgs&) override {
    return std::exchange(used_, true) ? separator_ : Value(Text());
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_joiner(Runtime& rt, const Value&, const CallArgs& args) {
  const Params p(args, "joiner", {"sep"});
  Text separator = p[0] ? to_text(*p[0], rt.budget) : Text(", ");
  return Value(Value::ObjectPtr(std::make_shared<Joiner>(make_text(rt.budget, std::move(separator)))));
}

Value raise_exception(Runtime& rt, const Value&, const CallArgs& args) {
  const Params p(args, "raise_exception", {"message"});
  fail(to_text(p.required(0), rt.budget).bytes());
}

Value strftime_now(Runtime& rt, const Value&, const CallArgs& args) {
  const Params p(args, "strftime_now", {"format"});
  p.required(0);
  const Text* format = p.text(0);
  if (!format || format->size() > 1000)
    fail("strftime_now(): the format must be a str of at most 1000 bytes");
  const auto now = static_cast<std::time_t>(rt.now);
  std::tm parts{};
  gmtime_r(&now, &parts);
  // A directive gives some tens of bytes at most; one that gives none would look like a buffer too small.
  std::string out(64 * format->size() + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), (format->bytes() + " ").c_str(), &parts));
  if (!out.empty()) out.pop_back();
  return make_text(rt.budget, out);
}

constexpr NamedFunction kGlobals[] = {
    {"cycler", make_cycler},
    {"dict", dict},
    {"joiner", make_joiner},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now},
};

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  for (const NamedFunction& f : kGlobals)
    if (f.name == name) return bind(f.function, Value(), f.name);
  return std::nullopt;
}

}  // namespace kvasir::jinja
