#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_lexer.h"

namespace kvasir::jinja {

// Walks a template's tokens and parses expressions, with jinja2's precedence: or, and, not, comparisons and
// in, + -, ~,
// * / // %, ** (to the left), unary, then calls, subscripts, filters and tests. A filter binds looser than a
// sign.
class ExprParser {
 public:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // An expression or, where commas follow, a tuple.
  ExprPtr tuple_or_expression(bool conditional = true);
  ExprPtr expression(bool conditional = true);
  // What can be assigned to: a name, a tuple of targets or, with `attributes`, an attribute of a namespace.
  ExprPtr target(bool attributes);
  // "name(args) | name ..." without the value in front, for filter blocks and block sets.
  ExprPtr filter_chain(ExprPtr value);
  ExprPtr postfix_expression();  // without filters

  const Token& current() const { return tokens_[pos_]; }
  const Token& peek() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  Token take() { return std::move(tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]); }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string take_identifier();
  void expect(Token::Kind kind, std::string_view what);
  [[noreturn]] void error(std::string message) const;

  // Bounds the recursion of the parser.
  class Nesting {
   public:
    explicit Nesting(ExprParser& parser);
    ~Nesting() { --parser_.nesting_; }

   private:
    ExprParser& parser_;
  };

  // Names of those a macro's body may use that the parser has met since they were last cleared.
  bool met_varargs = false, met_kwargs = false, met_caller = false;

 private:
  ExprPtr node(Expr::Kind kind) const;
  ExprPtr node(Expr::Kind kind, ExprPtr first) const;
  void adopt(Expr& parent, ExprPtr child) const;
  ExprPtr or_expression();
  ExprPtr and_expression();
  ExprPtr not_expression();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr parenthesised();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr value);
  ExprPtr attribute(ExprPtr value);
  ExprPtr subscript(ExprPtr value);
  ExprPtr filters(ExprPtr value);
  ExprPtr filter(ExprPtr value);
  ExprPtr test(ExprPtr value);
  void arguments(Expr& call);
  ExprPtr single_target(bool attributes);
  bool tuple_ends() const;
  std::string dotted_name();

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
};

}  // namespace kvasir::jinja
