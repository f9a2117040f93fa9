// The parts of ExprParser that follow a value: attributes, subscripts, calls, filters, tests; and assignment
// targets.

#include <algorithm>

#include "tokenizer/jinja_expr_parser.h"

namespace kvasir::jinja {

using Kind = Expr::Kind;

ExprPtr ExprParser::postfix(ExprPtr value) {
  while (true) {
    if (skip_operator(".")) {
      value = attribute(std::move(value));
    } else if (skip_operator("[")) {
      value = subscript(std::move(value));
    } else if (current().is_operator("(")) {
      value = node(Kind::kCall, std::move(value));
      arguments(*value);
    } else {
      return value;
    }
  }
}

ExprPtr ExprParser::attribute(ExprPtr value) {
  if (current().kind == Token::Kind::kInteger) {
    auto item = node(Kind::kItem, std::move(value));
    auto index = node(Kind::kConstant);
    index->constant = Value(take().integer);
    adopt(*item, std::move(index));
    return item;
  }
  auto e = node(Kind::kAttribute, std::move(value));
  e->name = take_identifier();
  return e;
}

ExprPtr ExprParser::subscript(ExprPtr value) {
  const auto part = [&]() -> ExprPtr {
    return current().is_operator(":") || current().is_operator("]") ? nullptr : expression();
  };
  ExprPtr first = part();
  ExprPtr e;
  if (current().is_operator(":")) {
    e = node(Kind::kSlice, std::move(value));
    adopt(*e, std::move(first));
    for (int i = 0; i < 2; ++i) adopt(*e, skip_operator(":") ? part() : nullptr);
  } else {
    if (!first) first = node(Kind::kTuple);
    if (current().is_operator(",")) {
      first = node(Kind::kTuple, std::move(first));
      while (skip_operator(",") && !current().is_operator("]")) adopt(*first, expression());
    }
    e = node(Kind::kItem, std::move(value));
    adopt(*e, std::move(first));
  }
  expect_operator("]");
  return e;
}

void ExprParser::arguments(Expr& call) {
  expect_operator("(");
  const auto grow = [&](const ExprPtr& e) { call.height = std::max(call.height, e->height + 1); };
  while (!current().is_operator(")")) {
    if (skip_operator("**")) {
      if (call.star_star) error("a call has two ** arguments");
      grow(call.star_star = expression());
    } else if (skip_operator("*")) {
      if (call.star || call.star_star) error("a call has a * argument out of place");
      grow(call.star = expression());
    } else if (current().kind == Token::Kind::kName && peek().is_operator("=")) {
      std::string name = take().text;
      take();
      call.named.emplace_back(std::move(name), expression());
      grow(call.named.back().second);
    } else {
      if (!call.named.empty() || call.star || call.star_star)
        error("a positional argument follows a named one");
      adopt(call, expression());
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
}

std::string ExprParser::dotted_name() {
  std::string name = take_identifier();
  while (skip_operator(".")) name += "." + take_identifier();
  return name;
}

ExprPtr ExprParser::filters(ExprPtr value) {
  while (true) {
    if (skip_operator("|")) {
      value = filter(std::move(value));
    } else if (skip_name("is")) {
      value = test(std::move(value));
    } else if (current().is_operator("(")) {
      value = node(Kind::kCall, std::move(value));
      arguments(*value);
    } else {
      return value;
    }
  }
}

ExprPtr ExprParser::filter(ExprPtr value) {
  auto e = node(Kind::kFilter, std::move(value));
  e->name = dotted_name();
  if (current().is_operator("(")) arguments(*e);
  return e;
}

ExprPtr ExprParser::filter_chain(ExprPtr value) {
  value = filter(std::move(value));
  while (skip_operator("|")) value = filter(std::move(value));
  return value;
}

ExprPtr ExprParser::test(ExprPtr value) {
  const bool negated = skip_name("not");
  auto e = node(Kind::kTest, std::move(value));
  e->name = dotted_name();
  const Token& t = current();
  using K = Token::Kind;
  if (t.is_operator("(")) {
    arguments(*e);
  } else if (t.is_name("is")) {
    error("tests cannot be chained with 'is'");
  } else if ((t.kind == K::kName && !t.is_name("else") && !t.is_name("or") && !t.is_name("and") &&
              !t.is_name("if") && !t.is_name("in") && !t.is_name("not")) ||
             t.kind == K::kString || t.kind == K::kInteger || t.kind == K::kFloat || t.is_operator("[") ||
             t.is_operator("{")) {
    adopt(*e, postfix_expression());
  }
  return negated ? node(Kind::kNot, std::move(e)) : std::move(e);
}

ExprPtr ExprParser::single_target(bool attributes) {
  const Nesting nesting(*this);
  if (skip_operator("(")) {
    ExprPtr inner = target(attributes);
    expect_operator(")");
    return inner;
  }
  ExprPtr e = node(Kind::kName);
  e->name = take_identifier();
  for (std::string_view reserved : {"true", "false", "none", "True", "False", "None"})
    if (e->name == reserved) error("cannot assign to '" + e->name + "'");
  if (attributes && skip_operator(".")) {
    e = node(Kind::kAttribute, std::move(e));
    e->name = take_identifier();
  }
  return e;
}

ExprPtr ExprParser::target(bool attributes) {
  ExprPtr first = single_target(attributes);
  if (!current().is_operator(",")) return first;
  auto tuple = node(Kind::kTuple, std::move(first));
  while (skip_operator(",") && !tuple_ends() && !current().is_operator("="))
    adopt(*tuple, single_target(attributes));
  return tuple;
}

}  // namespace kvasir::jinja
