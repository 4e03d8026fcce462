// A template as tokens: text, and what stands between {{ }} and {% %}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

enum class TokenKind {
  kText,         // outside of tags, white space trimmed as the tags ask
  kOutputBegin,  // {{
  kOutputEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // unescaped
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

/// As Jinja 3 with trim_blocks, lstrip_blocks and without keep_trailing_newline, which is how
/// transformers compiles chat templates. Comments are gone; {% raw %} is text. Error (kData): with
/// the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lockstep::jinja
