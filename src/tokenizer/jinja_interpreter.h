#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_library.h"

namespace kvasir::jinja {

// Variables of one block that has its own: a loop's round, a macro's call, a block set.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;
  bool captured = false;  // a macro may look here later, so it is not used again
};

// Runs one template once. Every Value and Scope it makes dies with it.
class Interpreter {
 public:
  // `variables` is what the template sees; the names must outlive the interpreter.
  Interpreter(std::vector<std::pair<std::string_view, Value>> variables, Runtime runtime);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // The whole output. Throws Error.
  Text render(const Block& block);

  // The output of a macro's body, its parameters bound as its definition says. `closure` is where it was
  // defined.
  Value call_macro(const Stmt& definition, Scope* closure, const CallArgs& args);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // One evaluation or statement inside another; bounds the recursion.
  class Level {
   public:
    explicit Level(Interpreter& interpreter);
    ~Level() { --interpreter_.nesting_; }

   private:
    Interpreter& interpreter_;
  };

  // Statements (jinja_interpreter.cc).
  Flow run(const Block& block);
  Flow run(const Stmt& s);
  Flow run_if(const Stmt& s);
  Flow run_for(const Stmt& s);
  Flow run_round(const Stmt& s, const Value& item, const Value& loop);
  Flow run_scoped(const Block& block);
  Flow run_set_block(const Stmt& s);
  Flow run_filter_block(const Stmt& s);
  Flow run_with(const Stmt& s);
  void run_call_block(const Stmt& s);
  void print(const Value& value);
  Flow capture(const Block& block, Text& out);
  std::vector<Value> loop_items(const Stmt& s);
  Value make_macro(const Stmt& s);
  void bind_parameters(const MacroDef& macro, const CallArgs& args);

  // Variables.
  void push_scope(Scope* parent);
  void pop_scope(Scope* back_to);
  void assign(const Expr& target, const Value& value);
  void assign_name(std::string_view name, Value value);
  Value look_up(std::string_view name);

  // Expressions (jinja_eval.cc).
  Value eval(const Expr& e);
  Value eval_node(const Expr& e);
  Value eval_collection(const Expr& e);
  Value eval_slice(const Expr& e);
  Value eval_call(const Expr& e);
  Value eval_filter(const Expr& e, const Value* input = nullptr);
  Value eval_logic(const Expr& e);
  Value eval_arithmetic(const Expr& e);
  Value eval_compare(const Expr& e);
  Value eval_concatenate(const Expr& e);
  Value eval_conditional(const Expr& e);
  CallArgs eval_arguments(const Expr& e, size_t first);

  Runtime runtime_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  uint32_t nesting_ = 0;  // evaluations and statements inside each other
};

}  // namespace kvasir::jinja
