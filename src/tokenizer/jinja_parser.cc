#include "tokenizer/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "tokenizer/jinja_expr_parser.h"

namespace kvasir::jinja {
namespace {

using Kind = Stmt::Kind;
using EndTags = std::initializer_list<std::string_view>;

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view source) : p_(tokenize_template(source)) {}

  Block run() { return block({}); }

 private:
  std::unique_ptr<Stmt> statement(Kind kind) const {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = p_.current().line;
    return s;
  }

  bool at_any(EndTags tags) const {
    return std::any_of(tags.begin(), tags.end(), [&](std::string_view t) { return p_.current().is_name(t); });
  }

  // Statements up to a tag of `ends`, whose name is then current; to the end of the template when there are
  // none.
  Block block(EndTags ends) {
    const ExprParser::Nesting nesting(p_);
    Block out;
    while (true) {
      switch (p_.current().kind) {
        case Token::Kind::kData: {
          auto s = statement(Kind::kText);
          s->text = Value(Text(p_.take().text, true));
          out.push_back(std::move(s));
          break;
        }
        case Token::Kind::kVariableBegin: {
          p_.take();
          auto s = statement(Kind::kPrint);
          s->exprs.push_back(p_.tuple_or_expression());
          p_.expect(Token::Kind::kVariableEnd, "'}}'");
          out.push_back(std::move(s));
          break;
        }
        case Token::Kind::kBlockBegin:
          p_.take();
          if (at_any(ends)) return out;
          out.push_back(tag());
          end_tag();
          break;
        default:
          if (ends.size() != 0)
            p_.error("the template ends inside a block that '" + std::string(*(ends.end() - 1)) +
                     "' should close");
          return out;
      }
    }
  }

  void end_tag() { p_.expect(Token::Kind::kBlockEnd, "'%}'"); }

  // A body between the current tag's end and {% end %}.
  Block body(EndTags ends) {
    p_.skip_operator(":");
    end_tag();
    return block(ends);
  }

  Block whole_body(std::string_view end) {
    Block b = body({end});
    p_.take();
    return b;
  }

  std::unique_ptr<Stmt> tag() {
    const std::string name = p_.take_identifier();
    if (name == "if") return if_tag();
    if (name == "for") return for_tag();
    if (name == "set") return set_tag();
    if (name == "macro") return macro_tag();
    if (name == "call") return call_tag();
    if (name == "filter") return filter_tag();
    if (name == "with") return with_tag();
    if (name == "generation") return generation_tag();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) p_.error("'" + name + "' outside a loop");
      return statement(name == "break" ? Kind::kBreak : Kind::kContinue);
    }
    p_.error("unknown tag '" + name + "'");
  }

  std::unique_ptr<Stmt> if_tag() {
    auto s = statement(Kind::kIf);
    do {
      s->exprs.push_back(p_.tuple_or_expression(false));
      s->blocks.push_back(body({"elif", "else", "endif"}));
    } while (p_.skip_name("elif"));
    if (p_.skip_name("else")) s->blocks.push_back(body({"endif"}));
    p_.expect_name("endif");
    return s;
  }

  std::unique_ptr<Stmt> for_tag() {
    auto s = statement(Kind::kFor);
    s->exprs.push_back(p_.target(false));
    p_.expect_name("in");
    s->exprs.push_back(p_.tuple_or_expression(false));
    s->exprs.push_back(p_.skip_name("if") ? p_.expression() : nullptr);
    if (p_.current().is_name("recursive")) p_.error("recursive loops are not supported");
    ++loops_;
    s->blocks.push_back(body({"else", "endfor"}));
    --loops_;
    if (p_.skip_name("else")) s->blocks.push_back(body({"endfor"}));
    p_.expect_name("endfor");
    return s;
  }

  std::unique_ptr<Stmt> set_tag() {
    auto s = statement(Kind::kSet);
    s->exprs.push_back(p_.target(true));
    if (p_.skip_operator("=")) {
      s->exprs.push_back(p_.tuple_or_expression());
      return s;
    }
    s->kind = Kind::kSetBlock;
    s->exprs.push_back(p_.skip_operator("|") ? p_.filter_chain(nullptr) : nullptr);
    s->blocks.push_back(whole_body("endset"));
    return s;
  }

  // "(a, b=1)"
  void signature(MacroDef& macro) {
    p_.expect_operator("(");
    while (!p_.current().is_operator(")")) {
      macro.params.push_back(p_.take_identifier());
      if (p_.skip_operator("="))
        macro.defaults.push_back(p_.expression());
      else if (!macro.defaults.empty())
        p_.error("a parameter without a default follows one with");
      if (!p_.skip_operator(",")) break;
    }
    p_.expect_operator(")");
  }

  // Parses a macro's body and notes which of the special names it uses. What an inner macro uses, its outer
  // one does.
  Block macro_body(MacroDef& macro, std::string_view end) {
    const bool varargs = std::exchange(p_.met_varargs, false), kwargs = std::exchange(p_.met_kwargs, false),
               caller = std::exchange(p_.met_caller, false);
    const int loops = std::exchange(loops_, 0);
    Block b = whole_body(end);
    loops_ = loops;
    macro.uses_varargs = p_.met_varargs;
    macro.uses_kwargs = p_.met_kwargs;
    macro.uses_caller = p_.met_caller;
    p_.met_varargs |= varargs;
    p_.met_kwargs |= kwargs;
    p_.met_caller |= caller;
    return b;
  }

  std::unique_ptr<Stmt> macro_tag() {
    auto s = statement(Kind::kMacro);
    s->macro = std::make_unique<MacroDef>();
    s->macro->name = p_.take_identifier();
    signature(*s->macro);
    s->blocks.push_back(macro_body(*s->macro, "endmacro"));
    return s;
  }

  std::unique_ptr<Stmt> call_tag() {
    auto s = statement(Kind::kCallBlock);
    s->macro = std::make_unique<MacroDef>();
    s->macro->name = "caller";
    if (p_.current().is_operator("(")) signature(*s->macro);
    s->exprs.push_back(p_.expression());
    if (s->exprs[0]->kind != Expr::Kind::kCall) p_.error("'call' needs a call");
    s->blocks.push_back(macro_body(*s->macro, "endcall"));
    return s;
  }

  std::unique_ptr<Stmt> filter_tag() {
    auto s = statement(Kind::kFilterBlock);
    s->exprs.push_back(p_.filter_chain(nullptr));
    s->blocks.push_back(whole_body("endfilter"));
    return s;
  }

  std::unique_ptr<Stmt> with_tag() {
    auto s = statement(Kind::kWith);
    while (p_.current().kind != Token::Kind::kBlockEnd) {
      if (!s->exprs.empty()) p_.expect_operator(",");
      s->exprs.push_back(p_.target(false));
      p_.expect_operator("=");
      s->exprs.push_back(p_.expression());
    }
    s->blocks.push_back(whole_body("endwith"));
    return s;
  }

  std::unique_ptr<Stmt> generation_tag() {
    auto s = statement(Kind::kScope);
    const int loops = std::exchange(loops_, 0);  // jinja2 makes its body a function
    s->blocks.push_back(whole_body("endgeneration"));
    loops_ = loops;
    return s;
  }

  ExprParser p_;
  int loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source) {
  return TemplateParser(source).run();
}

}  // namespace kvasir::jinja
