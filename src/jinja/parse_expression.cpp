// Recursive-descent parser for template expressions.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "base/format.h"
#include "base/parse_double.h"
#include "jinja/parser.h"

namespace lockstep::jinja {
namespace {

using Kind = Expression::Kind;

ExpressionPtr make(Kind kind, int64_t line) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  return made;
}

ExpressionPtr make(Kind kind, int64_t line, ExpressionPtr first, ExpressionPtr second = nullptr) {
  ExpressionPtr made = make(kind, line);
  made->parts.push_back(std::move(first));
  if (second != nullptr) {
    made->parts.push_back(std::move(second));
  }
  return made;
}

ExpressionPtr make_arithmetic(const Token& op, ExpressionPtr first, ExpressionPtr second) {
  ExpressionPtr made = make(Kind::kArithmetic, op.line, std::move(first), std::move(second));
  made->operators.push_back(op.text);
  return made;
}

ExpressionPtr make_constant(int64_t line, Value value) {
  ExpressionPtr made = make(Kind::kConstant, line);
  made->value = std::move(value);
  return made;
}

int64_t integer_of(const Token& number) {
  constexpr size_t kMostDigits = 18;
  if (number.text.size() > kMostDigits) {
    fail(fmt::format("line {}: {} is too large", number.line, number.text));
  }
  return std::stoll(number.text);
}

}  // namespace

bool TokenReader::take_operator(std::string_view text) {
  const bool there = is_operator(text);
  at_ += there ? 1 : 0;
  return there;
}

bool TokenReader::take_name(std::string_view text) {
  const bool there = is_name(text);
  at_ += there ? 1 : 0;
  return there;
}

void TokenReader::expect_operator(std::string_view text) {
  if (!take_operator(text)) {
    fail_here(fmt::format("'{}'", text));
  }
}

void TokenReader::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) {
    fail_here(what);
  }
  next();
}

std::string TokenReader::expect_any_name(std::string_view what) {
  if (!is(TokenKind::kName)) {
    fail_here(what);
  }
  return next().text;
}

void TokenReader::fail_here(std::string_view what) const {
  const Token& token = peek();
  const std::string found = token.kind == TokenKind::kEnd ? "got the end of the template"
                            : token.text.empty()
                                ? "got the start or end of a tag"
                                : fmt::format("got '{}'", token.text.substr(0, 40));
  fail(fmt::format("line {}: expected {}, {}", token.line, what, found));
}

struct ExpressionParser::Depth {
  explicit Depth(ExpressionParser& parser) : parser(parser) {
    constexpr int kDeepest = 200;
    if (++parser.depth_ > kDeepest) {
      fail(fmt::format(
          "line {}: expressions are nested deeper than {}", parser.tokens_.peek().line, kDeepest));
    }
  }
  ~Depth() { --parser.depth_; }
  ExpressionParser& parser;
};

ExpressionPtr ExpressionParser::expression(bool with_choice) {
  const Depth depth(*this);
  ExpressionPtr value = disjunction();
  while (with_choice && tokens_.is_name("if")) {
    const int64_t line = tokens_.next().line;
    ExpressionPtr condition = disjunction();
    ExpressionPtr choice = make(Kind::kChoose, line, std::move(value), std::move(condition));
    choice->parts.push_back(tokens_.take_name("else") ? expression() : nullptr);
    value = std::move(choice);
  }
  return value;
}

ExpressionPtr ExpressionParser::tuple(bool with_choice) {
  const int64_t line = tokens_.peek().line;
  ExpressionPtr first = expression(with_choice);
  if (!tokens_.is_operator(",")) {
    return first;
  }
  ExpressionPtr all = make(Kind::kTuple, line, std::move(first));
  while (tokens_.take_operator(",")) {
    if (tokens_.is(TokenKind::kBlockEnd) || tokens_.is(TokenKind::kOutputEnd) ||
        tokens_.is_operator(")") || tokens_.is_operator("]")) {
      break;
    }
    all->parts.push_back(expression(with_choice));
  }
  return all;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  while (tokens_.is_name("or")) {
    const int64_t line = tokens_.next().line;
    left = make(Kind::kOr, line, std::move(left), conjunction());
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (tokens_.is_name("and")) {
    const int64_t line = tokens_.next().line;
    left = make(Kind::kAnd, line, std::move(left), negation());
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (tokens_.is_name("not")) {
    const Depth depth(*this);
    const int64_t line = tokens_.next().line;
    return make(Kind::kNot, line, negation());
  }
  return comparison();
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::array<std::string_view, 6> kOperators{"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr first = sum();
  ExpressionPtr chain;
  while (true) {
    std::string op;
    const Token& token = tokens_.peek();
    if (token.kind == TokenKind::kOperator &&
        std::find(kOperators.begin(), kOperators.end(), token.text) != kOperators.end()) {
      op = tokens_.next().text;
    } else if (tokens_.take_name("in")) {
      op = "in";
    } else if (
        tokens_.is_name("not") && tokens_.peek(1).text == "in" &&
        tokens_.peek(1).kind == TokenKind::kName) {
      tokens_.next();
      tokens_.next();
      op = "not in";
    } else {
      return chain != nullptr ? std::move(chain) : std::move(first);
    }
    if (chain == nullptr) {
      const int64_t line = first->line;
      chain = make(Kind::kCompare, line, std::move(first));
    }
    chain->operators.push_back(op);
    chain->parts.push_back(sum());
  }
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    const Token op = tokens_.next();
    left = make_arithmetic(op, std::move(left), concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr left = product();
  while (tokens_.is_operator("~")) {
    const Token op = tokens_.next();
    left = make_arithmetic(op, std::move(left), product());
  }
  return left;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (tokens_.is_operator("*") || tokens_.is_operator("/") || tokens_.is_operator("//") ||
         tokens_.is_operator("%")) {
    const Token op = tokens_.next();
    left = make_arithmetic(op, std::move(left), power());
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = sign(/*with_filters=*/true);
  while (tokens_.is_operator("**")) {
    const Token op = tokens_.next();
    left = make_arithmetic(op, std::move(left), sign(/*with_filters=*/true));
  }
  return left;
}

ExpressionPtr ExpressionParser::sign(bool with_filters) {
  const Depth depth(*this);
  ExpressionPtr value;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const Token op = tokens_.next();
    value = make(
        op.text == "-" ? Kind::kNegative : Kind::kPositive, op.line, sign(/*with_filters=*/false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value), /*starts_with_name=*/false) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = tokens_.peek();
  switch (token.kind) {
    case TokenKind::kName:
      return name_or_constant();
    case TokenKind::kString: {
      const int64_t line = token.line;
      std::string text;
      while (tokens_.is(TokenKind::kString)) {
        text += tokens_.next().text;
      }
      return make_constant(line, std::move(text));
    }
    case TokenKind::kInteger: {
      const Token number = tokens_.next();
      return make_constant(number.line, integer_of(number));
    }
    case TokenKind::kFloat: {
      const Token number = tokens_.next();
      return make_constant(number.line, parse_double(number.text.c_str()));
    }
    default:
      break;
  }
  if (tokens_.is_operator("(")) {
    return in_parentheses();
  }
  if (tokens_.is_operator("[")) {
    return list();
  }
  if (tokens_.is_operator("{")) {
    return dict();
  }
  tokens_.fail_here("a value");
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const Token token = tokens_.next();
  if (token.text == "true" || token.text == "True") {
    return make_constant(token.line, true);
  }
  if (token.text == "false" || token.text == "False") {
    return make_constant(token.line, false);
  }
  if (token.text == "none" || token.text == "None") {
    return make_constant(token.line, None{});
  }
  ExpressionPtr name = make(Kind::kName, token.line);
  name->name = token.text;
  return name;
}

ExpressionPtr ExpressionParser::in_parentheses() {
  const int64_t line = tokens_.next().line;
  if (tokens_.take_operator(")")) {
    return make(Kind::kTuple, line);
  }
  ExpressionPtr inner = tuple();
  tokens_.expect_operator(")");
  return inner;
}

ExpressionPtr ExpressionParser::list() {
  ExpressionPtr all = make(Kind::kList, tokens_.next().line);
  while (!tokens_.take_operator("]")) {
    all->parts.push_back(expression());
    if (!tokens_.is_operator("]")) {
      tokens_.expect_operator(",");
    }
  }
  return all;
}

ExpressionPtr ExpressionParser::dict() {
  ExpressionPtr all = make(Kind::kDict, tokens_.next().line);
  while (!tokens_.take_operator("}")) {
    all->parts.push_back(expression());
    tokens_.expect_operator(":");
    all->parts.push_back(expression());
    if (!tokens_.is_operator("}")) {
      tokens_.expect_operator(",");
    }
  }
  return all;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr inner) {
  while (true) {
    const int64_t line = tokens_.peek().line;
    if (tokens_.take_operator(".")) {
      if (tokens_.is(TokenKind::kInteger)) {
        ExpressionPtr index = make_constant(line, integer_of(tokens_.next()));
        inner = make(Kind::kItem, line, std::move(inner), std::move(index));
        continue;
      }
      inner = make(Kind::kAttribute, line, std::move(inner));
      inner->name = tokens_.expect_any_name("an attribute name");
    } else if (tokens_.is_operator("[")) {
      inner = item(std::move(inner));
    } else if (tokens_.is_operator("(")) {
      inner = make(Kind::kCall, line, std::move(inner));
      inner->arguments = arguments();
    } else {
      return inner;
    }
  }
}

ExpressionPtr ExpressionParser::item(ExpressionPtr inner) {
  const int64_t line = tokens_.next().line;
  const auto part = [&]() -> ExpressionPtr {
    return tokens_.is_operator(":") || tokens_.is_operator("]") ? nullptr : expression();
  };
  ExpressionPtr first = part();
  ExpressionPtr made = make(Kind::kItem, line, std::move(inner));
  made->parts.push_back(std::move(first));
  if (tokens_.is_operator(":")) {
    made->kind = Kind::kSlice;
    while (tokens_.take_operator(":")) {
      made->parts.push_back(part());
    }
    made->parts.resize(4);
  } else if (made->parts[1] == nullptr) {
    tokens_.fail_here("an index");
  }
  tokens_.expect_operator("]");
  return made;
}

std::vector<NamedExpression> ExpressionParser::arguments() {
  std::vector<NamedExpression> all;
  tokens_.expect_operator("(");
  while (!tokens_.take_operator(")")) {
    NamedExpression& argument = all.emplace_back();
    if (tokens_.is(TokenKind::kName) && tokens_.peek(1).kind == TokenKind::kOperator &&
        tokens_.peek(1).text == "=") {
      argument.name = tokens_.next().text;
      tokens_.next();
    }
    const auto last = all.end() - 1;
    if (argument.name.empty() ? all.size() > 1 && !std::prev(last)->name.empty()
                              : std::any_of(all.begin(), last, [&](const NamedExpression& other) {
                                  return other.name == argument.name;
                                })) {
      tokens_.fail_here("a unique named argument (positional arguments come first)");
    }
    argument.value = expression();
    if (!tokens_.is_operator(")")) {
      tokens_.expect_operator(",");
    }
  }
  return all;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr inner, bool starts_with_name) {
  if (starts_with_name) {
    inner = filter(std::move(inner));
  }
  while (true) {
    if (tokens_.take_operator("|")) {
      inner = filter(std::move(inner));
    } else if (tokens_.take_name("is")) {
      inner = test(std::move(inner));
    } else if (tokens_.is_operator("(")) {
      inner = make(Kind::kCall, tokens_.peek().line, std::move(inner));
      inner->arguments = arguments();
    } else {
      return inner;
    }
  }
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr inner) {
  ExpressionPtr made = make(Kind::kFilter, tokens_.peek().line, std::move(inner));
  made->name = tokens_.expect_any_name("a filter name");
  if (tokens_.is_operator("(")) {
    made->arguments = arguments();
  }
  return made;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr inner) {
  const int64_t line = tokens_.peek().line;
  const bool denied = tokens_.take_name("not");
  ExpressionPtr made = make(Kind::kTest, line, std::move(inner));
  made->name = tokens_.expect_any_name("a test name");
  const Token& token = tokens_.peek();
  const bool is_value =
      token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
      token.kind == TokenKind::kFloat || tokens_.is_operator("[") || tokens_.is_operator("{") ||
      (token.kind == TokenKind::kName && token.text != "else" && token.text != "or" &&
       token.text != "and" && token.text != "is" && token.text != "if" && token.text != "not");
  if (tokens_.is_name("is")) {
    tokens_.fail_here("parentheses around the first of two tests");
  }
  if (tokens_.is_operator("(")) {
    made->arguments = arguments();
  } else if (is_value) {
    made->arguments.push_back({"", postfix(primary())});
  }
  return denied ? make(Kind::kNot, line, std::move(made)) : std::move(made);
}

}  // namespace lockstep::jinja
