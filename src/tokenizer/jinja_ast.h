#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace kvasir::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

// One expression. Chains of operators of one level ("a + b - c") are one node, so they do not nest.
struct Expr {
  enum class Kind : uint8_t {
    kConstant,     // constant
    kName,         // name
    kList,         // children
    kTuple,        // children
    kDict,         // children: key, value, key, value ...
    kAttribute,    // children[0].name
    kItem,         // children[0][children[1]]
    kSlice,        // children[0][children[1] : children[2] : children[3]], each of the last three may be null
    kCall,         // children[0](arguments)
    kFilter,       // children[0] | name(arguments); children[0] is null in filter blocks
    kTest,         // children[0] is name(arguments)
    kNot,          // children[0], as the next two
    kNegate,       //
    kPlus,         //
    kAnd,          // children
    kOr,           // children
    kArithmetic,   // children joined by operators, left to right
    kCompare,      // children joined by operators, as Python chains them
    kConcatenate,  // children joined by ~
    kConditional,  // children[1] if children[0] else children[2], which may be null
  };

  Kind kind = Kind::kConstant;
  int line = 0;
  int height = 1;  // of this tree
  std::string name;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<Operator> operators;
  // Arguments of calls, filters and tests: positional ones follow children[0]; then named, *args and
  // **kwargs.
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

// A macro's, or a call block's, parameters and body.
struct MacroDef {
  std::string name;
  std::vector<std::string> params;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  enum class Kind : uint8_t {
    kText,         // text
    kPrint,        // exprs[0]
    kIf,           // exprs[i]: blocks[i], ...; one block more than exprs is the else
    kFor,          // exprs: target, iterable, condition or null; blocks: body, else
    kSet,          // exprs: target, value
    kSetBlock,     // exprs: target, filter or null; blocks[0]
    kMacro,        // macro, blocks[0]
    kCallBlock,    // exprs[0] is the call; macro, blocks[0]
    kFilterBlock,  // exprs[0] is the filter; blocks[0]
    kWith,         // exprs: target, value, target, value ...; blocks[0]
    kScope,        // blocks[0] (generation)
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  Value text;
  std::vector<ExprPtr> exprs;
  std::vector<Block> blocks;
  std::unique_ptr<MacroDef> macro;
};

}  // namespace kvasir::jinja
