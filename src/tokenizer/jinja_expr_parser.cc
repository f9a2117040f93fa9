#include "tokenizer/jinja_expr_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace kvasir::jinja {
namespace {

using Kind = Expr::Kind;

constexpr int kMaxNesting = 150;  // of brackets, signs and blocks
constexpr int kMaxHeight = 400;   // of an expression's tree

std::string describe(const Token& t) {
  switch (t.kind) {
    case Token::Kind::kEnd:
      return "the end of the template";
    case Token::Kind::kVariableEnd:
      return "'}}'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return "a number";
    case Token::Kind::kString:
      return "a string";
    default:
      return "'" + t.text + "'";
  }
}

}  // namespace

ExprParser::Nesting::Nesting(ExprParser& parser) : parser_(parser) {
  if (parser_.nesting_ >= kMaxNesting)
    parser_.error(fmt::format("the template nests deeper than {}", kMaxNesting));
  ++parser_.nesting_;
}

void ExprParser::error(std::string message) const {
  throw Error{std::move(message), current().line};
}

bool ExprParser::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  take();
  return true;
}

bool ExprParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void ExprParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) error(fmt::format("expected '{}', found {}", op, describe(current())));
}

void ExprParser::expect_name(std::string_view name) {
  if (!skip_name(name)) error(fmt::format("expected '{}', found {}", name, describe(current())));
}

std::string ExprParser::take_identifier() {
  if (current().kind != Token::Kind::kName) error("expected a name, found " + describe(current()));
  return take().text;
}

void ExprParser::expect(Token::Kind kind, std::string_view what) {
  if (current().kind != kind) error(fmt::format("expected {}, found {}", what, describe(current())));
  take();
}

ExprPtr ExprParser::node(Kind kind) const {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = current().line;
  return e;
}

ExprPtr ExprParser::node(Kind kind, ExprPtr first) const {
  auto e = node(kind);
  adopt(*e, std::move(first));
  return e;
}

void ExprParser::adopt(Expr& parent, ExprPtr child) const {
  if (child) {
    parent.height = std::max(parent.height, child->height + 1);
    if (parent.height > kMaxHeight) error(fmt::format("an expression nests deeper than {}", kMaxHeight));
  }
  parent.children.push_back(std::move(child));
}

bool ExprParser::tuple_ends() const {
  const Token& t = current();
  return t.kind == Token::Kind::kVariableEnd || t.kind == Token::Kind::kBlockEnd || t.is_operator(")") ||
         t.is_name("in");
}

ExprPtr ExprParser::tuple_or_expression(bool conditional) {
  ExprPtr first = expression(conditional);
  if (!current().is_operator(",")) return first;
  auto tuple = node(Kind::kTuple, std::move(first));
  while (skip_operator(",") && !tuple_ends()) adopt(*tuple, expression(conditional));
  return tuple;
}

ExprPtr ExprParser::expression(bool conditional) {
  const Nesting nesting(*this);
  ExprPtr value = or_expression();
  while (conditional && skip_name("if")) {
    ExprPtr condition = or_expression();
    auto choice = node(Kind::kConditional, std::move(condition));
    adopt(*choice, std::move(value));
    adopt(*choice, skip_name("else") ? expression() : nullptr);
    value = std::move(choice);
  }
  return value;
}

ExprPtr ExprParser::or_expression() {
  ExprPtr first = and_expression();
  if (!current().is_name("or")) return first;
  auto e = node(Kind::kOr, std::move(first));
  while (skip_name("or")) adopt(*e, and_expression());
  return e;
}

ExprPtr ExprParser::and_expression() {
  ExprPtr first = not_expression();
  if (!current().is_name("and")) return first;
  auto e = node(Kind::kAnd, std::move(first));
  while (skip_name("and")) adopt(*e, not_expression());
  return e;
}

ExprPtr ExprParser::not_expression() {
  if (!current().is_name("not")) return comparison();
  const Nesting nesting(*this);
  take();
  return node(Kind::kNot, not_expression());
}

ExprPtr ExprParser::comparison() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  const auto next = [&]() -> std::optional<Operator> {
    for (const auto& [text, op] : kOperators)
      if (skip_operator(text)) return op;
    if (skip_name("in")) return Operator::kIn;
    if (current().is_name("not") && peek().is_name("in")) {
      take();
      take();
      return Operator::kNotIn;
    }
    return std::nullopt;
  };
  ExprPtr value = sum();
  auto op = next();
  if (!op) return value;
  auto e = node(Kind::kCompare, std::move(value));
  for (; op; op = next()) {
    e->operators.push_back(*op);
    adopt(*e, sum());
  }
  return e;
}

ExprPtr ExprParser::sum() {
  ExprPtr value = concatenation();
  if (!current().is_operator("+") && !current().is_operator("-")) return value;
  auto e = node(Kind::kArithmetic, std::move(value));
  while (current().is_operator("+") || current().is_operator("-")) {
    e->operators.push_back(take().text == "+" ? Operator::kAdd : Operator::kSubtract);
    adopt(*e, concatenation());
  }
  return e;
}

ExprPtr ExprParser::concatenation() {
  ExprPtr value = product();
  if (!current().is_operator("~")) return value;
  auto e = node(Kind::kConcatenate, std::move(value));
  while (skip_operator("~")) adopt(*e, product());
  return e;
}

ExprPtr ExprParser::product() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {{"*", Operator::kMultiply},
                                                                         {"/", Operator::kDivide},
                                                                         {"//", Operator::kFloorDivide},
                                                                         {"%", Operator::kModulo}};
  ExprPtr value = power();
  while (true) {
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& o) { return current().is_operator(o.first); });
    if (op == std::end(kOperators)) return value;
    take();
    if (value->kind != Kind::kArithmetic || value->name != "product") {
      value = node(Kind::kArithmetic, std::move(value));
      value->name = "product";  // of this level, so it may grow
    }
    value->operators.push_back(op->second);
    adopt(*value, power());
  }
}

ExprPtr ExprParser::power() {
  ExprPtr value = unary(true);
  if (!current().is_operator("**")) return value;
  auto e = node(Kind::kArithmetic, std::move(value));
  while (skip_operator("**")) {
    e->operators.push_back(Operator::kPower);
    adopt(*e, unary(true));
  }
  return e;
}

ExprPtr ExprParser::unary(bool with_filters) {
  ExprPtr value;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Nesting nesting(*this);
    const Kind kind = take().text == "-" ? Kind::kNegate : Kind::kPlus;
    value = node(kind, unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

ExprPtr ExprParser::postfix_expression() {
  return postfix(primary());
}

ExprPtr ExprParser::primary() {
  const Token& t = current();
  switch (t.kind) {
    case Token::Kind::kName:
      return name_or_constant();
    case Token::Kind::kString: {
      auto e = node(Kind::kConstant);
      std::string text;
      while (current().kind == Token::Kind::kString) text += take().text;
      e->constant = Value(Text(std::move(text), true));
      return e;
    }
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: {
      auto e = node(Kind::kConstant);
      e->constant = t.kind == Token::Kind::kInteger ? Value(t.integer) : Value(t.number);
      take();
      return e;
    }
    default:
      break;
  }
  if (t.is_operator("(")) return parenthesised();
  if (t.is_operator("[")) return list();
  if (t.is_operator("{")) return dict();
  error("expected an expression, found " + describe(t));
}

ExprPtr ExprParser::name_or_constant() {
  auto e = node(Kind::kConstant);
  const std::string name = take().text;
  if (name == "true" || name == "True") {
    e->constant = Value(true);
  } else if (name == "false" || name == "False") {
    e->constant = Value(false);
  } else if (name == "none" || name == "None") {
    e->constant = Value::none();
  } else {
    e->kind = Kind::kName;
    e->name = name;
    met_varargs |= name == "varargs";
    met_kwargs |= name == "kwargs";
    met_caller |= name == "caller";
  }
  return e;
}

ExprPtr ExprParser::parenthesised() {
  take();
  ExprPtr e = current().is_operator(")") ? node(Kind::kTuple) : tuple_or_expression();
  expect_operator(")");
  return e;
}

ExprPtr ExprParser::list() {
  auto e = node(Kind::kList);
  take();
  while (!current().is_operator("]")) {
    adopt(*e, expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return e;
}

ExprPtr ExprParser::dict() {
  auto e = node(Kind::kDict);
  take();
  while (!current().is_operator("}")) {
    adopt(*e, expression());
    expect_operator(":");
    adopt(*e, expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return e;
}

}  // namespace kvasir::jinja
