#include "tokenizer/jinja_interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_loop.h"
#include "tokenizer/jinja_print.h"

namespace kvasir::jinja {
namespace {

// A macro, or the body of a call block.
class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Stmt& definition, Scope* closure)
      : interpreter_(interpreter), definition_(definition), closure_(closure) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value call(Runtime&, const CallArgs& args) override {
    return interpreter_.call_macro(definition_, closure_, args);
  }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override {
    if (name == "name") return make_text(runtime.budget, definition_.macro->name);
    return std::nullopt;
  }

 private:
  Interpreter& interpreter_;
  const Stmt& definition_;
  Scope* closure_;
};

}  // namespace

Interpreter::Interpreter(std::vector<std::pair<std::string_view, Value>> variables, Runtime runtime)
    : runtime_(std::move(runtime)) {
  push_scope(nullptr);
  scope_->variables = std::move(variables);
}

// Several expressions and blocks stand inside each other per macro call.
Interpreter::Level::Level(Interpreter& interpreter) : interpreter_(interpreter) {
  const uint32_t limit = 8 * interpreter_.runtime_.max_depth;
  if (interpreter_.nesting_ >= limit) fail(fmt::format("evaluation nests deeper than {}", limit));
  ++interpreter_.nesting_;
}

Interpreter::~Interpreter() {
  for (const auto& ns : runtime_.namespaces) ns->clear();
}

Text Interpreter::render(const Block& block) {
  Text out;
  out_ = &out;
  push_scope(scope_);
  run(block);
  return out;
}

Interpreter::Flow Interpreter::run(const Block& block) {
  for (const auto& s : block)
    if (const Flow flow = run(*s); flow != Flow::kNormal) return flow;
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const Stmt& s) {
  runtime_.budget.step();
  const Level level(*this);
  try {
    switch (s.kind) {
      case Stmt::Kind::kText:
        print(s.text);
        return Flow::kNormal;
      case Stmt::Kind::kPrint:
        print(eval(*s.exprs[0]));
        return Flow::kNormal;
      case Stmt::Kind::kIf:
        return run_if(s);
      case Stmt::Kind::kFor:
        return run_for(s);
      case Stmt::Kind::kSet:
        assign(*s.exprs[0], eval(*s.exprs[1]));
        return Flow::kNormal;
      case Stmt::Kind::kSetBlock:
        return run_set_block(s);
      case Stmt::Kind::kMacro:
        assign_name(s.macro->name, make_macro(s));
        return Flow::kNormal;
      case Stmt::Kind::kCallBlock:
        run_call_block(s);
        return Flow::kNormal;
      case Stmt::Kind::kFilterBlock:
        return run_filter_block(s);
      case Stmt::Kind::kWith:
        return run_with(s);
      case Stmt::Kind::kScope:
        return run_scoped(s.blocks[0]);
      case Stmt::Kind::kBreak:
        return Flow::kBreak;
      case Stmt::Kind::kContinue:
        return Flow::kContinue;
    }
  } catch (Error& e) {
    e.line = e.line == 0 ? s.line : e.line;
    throw;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_if(const Stmt& s) {
  for (size_t i = 0; i < s.exprs.size(); ++i)
    if (eval(*s.exprs[i]).truthy()) return run(s.blocks[i]);
  return s.blocks.size() > s.exprs.size() ? run(s.blocks.back()) : Flow::kNormal;
}

std::vector<Value> Interpreter::loop_items(const Stmt& s) {
  std::vector<Value> items = iterate(eval(*s.exprs[1]), runtime_.budget);
  if (!s.exprs[2]) return items;
  Scope* const outer = scope_;
  std::vector<Value> kept;
  for (const Value& item : items) {
    push_scope(outer);
    assign(*s.exprs[0], item);
    if (eval(*s.exprs[2]).truthy()) kept.push_back(item);
    pop_scope(outer);
  }
  return kept;
}

Interpreter::Flow Interpreter::run_for(const Stmt& s) {
  std::vector<Value> items = loop_items(s);
  if (items.empty()) return s.blocks.size() > 1 ? run_scoped(s.blocks[1]) : Flow::kNormal;
  const auto loop = std::make_shared<Loop>(std::move(items));
  loop->set_handle(loop);
  const Value handle{Value::ObjectPtr(loop)};
  for (size_t i = 0; i < loop->items().size(); ++i) {
    loop->go_to(i);
    if (run_round(s, loop->items()[i], handle) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_round(const Stmt& s, const Value& item, const Value& loop) {
  Scope* const outer = scope_;
  runtime_.budget.step(2);
  push_scope(outer);
  assign_name("loop", loop);
  assign(*s.exprs[0], item);
  const Flow flow = run(s.blocks[0]);
  pop_scope(outer);
  return flow;
}

Interpreter::Flow Interpreter::run_scoped(const Block& block) {
  Scope* const outer = scope_;
  push_scope(outer);
  const Flow flow = run(block);
  pop_scope(outer);
  return flow;
}

Interpreter::Flow Interpreter::capture(const Block& block, Text& out) {
  Text* const outer = std::exchange(out_, &out);
  const Flow flow = run_scoped(block);
  out_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::run_set_block(const Stmt& s) {
  Text text;
  const Flow flow = capture(s.blocks[0], text);
  Value value = make_text(runtime_.budget, std::move(text));
  if (s.exprs[1]) value = eval_filter(*s.exprs[1], &value);
  assign(*s.exprs[0], value);
  return flow;
}

Interpreter::Flow Interpreter::run_filter_block(const Stmt& s) {
  Text text;
  const Flow flow = capture(s.blocks[0], text);
  const Value value = make_text(runtime_.budget, std::move(text));
  print(eval_filter(*s.exprs[0], &value));
  return flow;
}

Interpreter::Flow Interpreter::run_with(const Stmt& s) {
  Scope* const outer = scope_;
  std::vector<Value> values;  // none sees the others
  for (size_t i = 1; i < s.exprs.size(); i += 2) values.push_back(eval(*s.exprs[i]));
  push_scope(outer);
  for (size_t i = 0; i < values.size(); ++i) assign(*s.exprs[2 * i], values[i]);
  const Flow flow = run(s.blocks[0]);
  pop_scope(outer);
  return flow;
}

void Interpreter::run_call_block(const Stmt& s) {
  const Expr& e = *s.exprs[0];
  const Value callee = eval(*e.children[0]);
  CallArgs args = eval_arguments(e, 1);
  args.named.emplace_back("caller", make_macro(s));
  print(call(runtime_, callee, args));
}

void Interpreter::print(const Value& value) {
  if (const Text* t = value.text()) {
    runtime_.budget.bytes(t->size());
    out_->append(*t);
  } else {
    out_->append(to_text(value, runtime_.budget));
  }
  runtime_.budget.check_output(out_->size());
}

Value Interpreter::make_macro(const Stmt& s) {
  runtime_.budget.step(4);
  for (Scope* scope = scope_; scope && !scope->captured; scope = scope->parent) scope->captured = true;
  return Value(Value::ObjectPtr(std::make_shared<Macro>(*this, s, scope_)));
}

Value Interpreter::call_macro(const Stmt& definition, Scope* closure, const CallArgs& args) {
  if (++runtime_.depth > runtime_.max_depth)
    fail(fmt::format("macros call each other deeper than {}", runtime_.max_depth));
  runtime_.budget.step(4);
  Scope* const outer_scope = scope_;
  Text text;
  Text* const outer_out = std::exchange(out_, &text);
  push_scope(closure);
  bind_parameters(*definition.macro, args);
  run(definition.blocks[0]);
  pop_scope(outer_scope);
  out_ = outer_out;
  --runtime_.depth;
  return make_text(runtime_.budget, std::move(text));
}

void Interpreter::bind_parameters(const MacroDef& macro, const CallArgs& args) {
  const size_t count = macro.params.size();
  std::vector<const Value*> given(count);
  std::vector<Value> varargs;
  for (size_t i = 0; i < args.positional.size(); ++i) {
    if (i < count)
      given[i] = &args.positional[i];
    else
      varargs.push_back(args.positional[i]);
  }
  if (!varargs.empty() && !macro.uses_varargs)
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, count));
  auto kwargs = std::make_shared<Dict>();
  Value caller = Value::undefined("No caller defined");
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(macro.params.begin(), macro.params.end(), name);
    if (it != macro.params.end() && given[static_cast<size_t>(it - macro.params.begin())])
      fail(fmt::format("macro '{}' got argument '{}' twice", macro.name, name));
    if (it != macro.params.end())
      given[static_cast<size_t>(it - macro.params.begin())] = &value;
    else if (name == "caller" && macro.uses_caller)
      caller = value;
    else if (macro.uses_kwargs)
      kwargs->set(Value(Text(name)), value, runtime_.budget);
    else
      fail(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, name));
  }
  if (macro.uses_caller) assign_name("caller", caller);
  if (macro.uses_varargs)
    assign_name("varargs", make_list(runtime_.budget, std::move(varargs), List::Kind::kTuple));
  if (macro.uses_kwargs) assign_name("kwargs", Value(Value::DictPtr(std::move(kwargs))));
  const size_t without_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (given[i])
      assign_name(macro.params[i], *given[i]);
    else if (i >= without_default)
      assign_name(macro.params[i], eval(*macro.defaults[i - without_default]));
    else
      assign_name(macro.params[i],
                  Value::undefined(fmt::format("parameter '{}' was not provided", macro.params[i])));
  }
}

void Interpreter::push_scope(Scope* parent) {
  if (free_scopes_.empty()) {
    scopes_.push_back(std::make_unique<Scope>());
    free_scopes_.push_back(scopes_.back().get());
  }
  scope_ = free_scopes_.back();
  free_scopes_.pop_back();
  scope_->parent = parent;
}

void Interpreter::pop_scope(Scope* back_to) {
  if (!scope_->captured) {
    scope_->variables.clear();
    free_scopes_.push_back(scope_);
  }
  scope_ = back_to;
}

void Interpreter::assign(const Expr& target, const Value& value) {
  if (target.kind == Expr::Kind::kName) return assign_name(target.name, value);
  if (target.kind == Expr::Kind::kAttribute) {
    const Value owner = look_up(target.children[0]->name);
    auto* ns = dynamic_cast<Namespace*>(owner.object());
    if (!ns) fail("cannot assign attribute on non-namespace object");
    return ns->set(runtime_, Value(Text(target.name)), value);
  }
  const std::vector<Value> items = iterate(value, runtime_.budget);
  if (value.is_undefined()) value.require_defined();
  if (items.size() != target.children.size())
    fail(fmt::format("cannot unpack {} values into {} names", items.size(), target.children.size()));
  for (size_t i = 0; i < items.size(); ++i) assign(*target.children[i], items[i]);
}

void Interpreter::assign_name(std::string_view name, Value value) {
  auto& variables = scope_->variables;
  runtime_.budget.values(variables.size() / 8);
  for (auto& [known, slot] : variables)
    if (known == name) {
      slot = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
}

Value Interpreter::look_up(std::string_view name) {
  for (const Scope* s = scope_; s; s = s->parent) {
    runtime_.budget.values(s->variables.size() / 8);
    for (const auto& [known, value] : s->variables)
      if (known == name) return value;
  }
  if (auto global = find_global(name)) return *global;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

}  // namespace kvasir::jinja
