// Syntax tree of a template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace lockstep::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// Argument of a call, filter or test, or parameter of a macro.
struct NamedExpression {
  std::string name;     // empty if positional
  ExpressionPtr value;  // for a parameter: default, or null
};

struct Expression {
  enum class Kind {
    kConstant,  // value
    kName,      // name
    kList,
    kTuple,
    kDict,       // alternating keys and values
    kAttribute,  // parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]; null if omitted
    kCall,       // parts[0](arguments)
    kFilter,     // parts[0] | name(arguments)
    kTest,       // parts[0] is name(arguments)
    kNot,
    kNegative,
    kPositive,
    kAnd,
    kOr,
    kArithmetic,  // parts[0] operators[0] parts[1]
    kCompare,     // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kChoose,      // parts[0] if parts[1] else parts[2]; parts[2] may be null
  };
  Kind kind;
  int64_t line = 0;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<NamedExpression> arguments;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind {
    kText,    // name
    kOutput,  // expression
    kIf,      // expression, body, otherwise
    kFor,     // targets, expression, condition or null, body, otherwise
    kSet,  // targets (name, or "name.attribute" for a namespace), expression; null if the value is
           // the body
    kMacro,      // name, parameters, body
    kFilter,     // expression, whose innermost operand is the output of the body (kBody)
    kWith,       // parameters, body
    kGenerated,  // body: assistant text in {% generation %}
    kBreak,
    kContinue,
  };
  Kind kind;
  int64_t line = 0;
  std::string name;
  std::vector<std::string> targets;
  ExpressionPtr expression, condition;  // for a set with a body, condition is its filter or null
  std::vector<NamedExpression> parameters;
  Block body, otherwise;
};

/// Variable that contains the rendered body in the expression of a filter block.
inline constexpr std::string_view kBody = "{body}";

/// Parses a template. Throws Error (data) with the line.
Block parse(std::string_view source);

}  // namespace lockstep::jinja
