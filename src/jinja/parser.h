// Expression parser. Internal to jinja.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/syntax.h"

namespace lockstep::jinja {

/// Token stream. Errors contain the line.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }
  bool is(TokenKind kind, std::string_view text = {}) const {
    return peek().kind == kind && (text.empty() || peek().text == text);
  }
  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator, text); }
  bool is_name(std::string_view text) const { return is(TokenKind::kName, text); }
  /// Consume the next token and return true if it matches.
  bool take_operator(std::string_view text);
  bool take_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_any_name(std::string_view what);
  [[noreturn]] void fail_here(std::string_view what) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

/// Recursive-descent parser with Jinja's precedence. From lowest to highest: if-else; or; and; not;
/// comparisons; + -; ~; * / // %; **; signs; items and calls; filters and tests.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& tokens) : tokens_(tokens) {}
  ExpressionPtr expression(bool with_choice = true);
  /// Parses one expression, or a tuple of comma-separated expressions.
  ExpressionPtr tuple(bool with_choice = true);
  ExpressionPtr filters(ExpressionPtr inner, bool starts_with_name);
  /// Parses ( a, b=c ), including the opening parenthesis.
  std::vector<NamedExpression> arguments();

 private:
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr sign(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr in_parentheses();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr inner);
  ExpressionPtr item(ExpressionPtr inner);
  ExpressionPtr filter(ExpressionPtr inner);
  ExpressionPtr test(ExpressionPtr inner);
  /// Limits the nesting depth of expressions.
  struct Depth;

  TokenReader& tokens_;
  int depth_ = 0;
};

}  // namespace lockstep::jinja
