// Lexer. Splits a template into text and the tokens inside {{ }} and {% %}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

enum class TokenKind {
  kText,         // outside of tags, already trimmed
  kOutputBegin,  // {{
  kOutputEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // with escapes decoded
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int64_t line;
};

/// Tokenizes like Jinja 3 with trim_blocks and lstrip_blocks and without keep_trailing_newline, as
/// transformers does for chat templates. Drops comments and returns {% raw %} blocks as text.
/// Throws Error (data) with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lockstep::jinja
