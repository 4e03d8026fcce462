// Hand-written scanners for the split patterns of GPT-2, Llama 3 and Qwen2. Each scanner splits
// valid UTF-8 into pieces that cover it, in linear time. It is equivalent to a regular expression
// with Oniguruma's semantics:
//
// GPT-2:    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Llama 3:  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//           | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// Qwen2:    as Llama 3, with \p{N} instead of \p{N}{1,3}
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "text/unicode/unicode.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {

enum class SplitPattern { kGpt2, kLlama3, kQwen2 };

/// Returns the scanner equivalent to a regular expression in a tokenizer.json, if any.
std::optional<SplitPattern> known_pattern(std::string_view regex);

namespace internal {

inline CharacterClass class_at(const Characters& characters, const char* at) {
  return characters.class_of(code_point_at(at));
}

/// Returns the end of the (possibly empty) run of `wanted` characters that starts at `at`.
inline const char* skip_run(
    const Characters& characters, const char* at, const char* end, CharacterClass wanted) {
  while (at < end && class_at(characters, at) == wanted) {
    at += code_point_length(*at);
  }
  return at;
}

/// Returns the end of a contraction ('s 't 're 've 'm 'll 'd) whose apostrophe is at `at`, or `at`
/// if there is none. With kIgnoreCase, U+017F (long s) counts as s, as in Unicode case folding.
template <bool kIgnoreCase>
const char* skip_contraction(const char* at, const char* end) {
  const auto lower = [](char c) {
    return kIgnoreCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  if (end - at < 2) {
    return at;
  }
  const char first = lower(at[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') {
    return at + 2;
  }
  if (end - at < 3) {
    return at;
  }
  const char second = lower(at[2]);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
      (first == 'l' && second == 'l')) {
    return at + 3;
  }
  if (kIgnoreCase && at[1] == '\xC5' && at[2] == '\xBF') {
    return at + 3;
  }
  return at;
}

/// Returns the end of a white-space piece. At the end of the text, the piece is the whole run.
/// Otherwise the last space belongs to the next piece, unless the run has only one character.
inline const char* end_of_spaces(
    const char* begin, const char* run_end, const char* last, const char* end) {
  return run_end == end || last == begin ? run_end : last;
}

inline const char* gpt2_piece_end(const Characters& characters, const char* at, const char* end) {
  if (*at == '\'') {
    if (const char* after = skip_contraction<false>(at, end); after != at) {
      return after;
    }
  }
  const CharacterClass first = class_at(characters, at);
  if (first != CharacterClass::kSpace) {
    return skip_run(characters, at + code_point_length(*at), end, first);
  }
  if (*at == ' ' && at + 1 < end) {
    const CharacterClass next = class_at(characters, at + 1);
    if (next != CharacterClass::kSpace) {
      return skip_run(characters, at + 1 + code_point_length(at[1]), end, next);
    }
  }
  const char* last = at;
  const char* run_end = at;
  do {
    last = run_end;
    run_end += code_point_length(*run_end);
  } while (run_end < end && class_at(characters, run_end) == CharacterClass::kSpace);
  return end_of_spaces(at, run_end, last, end);
}

inline const char* skip_newlines(const char* at, const char* end) {
  while (at < end && (*at == '\r' || *at == '\n')) {
    ++at;
  }
  return at;
}

/// Returns the end of a white-space piece: after the last newline of the run, otherwise the result
/// of end_of_spaces().
inline const char* llama3_spaces_end(
    const Characters& characters, const char* at, const char* end) {
  const char* after_newline = nullptr;
  const char* last = at;
  const char* run_end = at;
  do {
    last = run_end;
    run_end += code_point_length(*run_end);
    if (*last == '\r' || *last == '\n') {
      after_newline = run_end;
    }
  } while (run_end < end && class_at(characters, run_end) == CharacterClass::kSpace);
  return after_newline != nullptr ? after_newline : end_of_spaces(at, run_end, last, end);
}

template <int kMostDigits>
const char* llama3_piece_end(const Characters& characters, const char* at, const char* end) {
  if (*at == '\'') {
    if (const char* after = skip_contraction<true>(at, end); after != at) {
      return after;
    }
  }
  const CharacterClass first = class_at(characters, at);
  const char* second = at + code_point_length(*at);
  if (first == CharacterClass::kLetter) {
    return skip_run(characters, second, end, first);
  }
  if (first == CharacterClass::kNumber) {
    int digits = 1;
    while (digits < kMostDigits && second < end && class_at(characters, second) == first) {
      second += code_point_length(*second);
      ++digits;
    }
    return second;
  }
  const CharacterClass next = second < end ? class_at(characters, second) : CharacterClass::kSpace;
  if (next == CharacterClass::kLetter && *at != '\r' && *at != '\n') {
    return skip_run(characters, second, end, next);
  }
  if (first == CharacterClass::kOther || (*at == ' ' && next == CharacterClass::kOther)) {
    return skip_newlines(skip_run(characters, second, end, CharacterClass::kOther), end);
  }
  return llama3_spaces_end(characters, at, end);
}

}  // namespace internal

/// Returns the end of the piece that starts at `at`. Requires at < end and valid UTF-8. `end` must
/// be the end of the text because white space there is split differently.
template <SplitPattern kPattern>
const char* piece_end(const Characters& characters, const char* at, const char* end) {
  if constexpr (kPattern == SplitPattern::kGpt2) {
    return internal::gpt2_piece_end(characters, at, end);
  } else if constexpr (kPattern == SplitPattern::kLlama3) {
    return internal::llama3_piece_end<3>(characters, at, end);
  } else {
    return internal::llama3_piece_end<1>(characters, at, end);
  }
}

/// Calls piece(std::string_view) for each piece of `text`, in order.
template <SplitPattern kPattern, class Piece>
void split_by(std::string_view text, Piece&& piece) {
  const Characters characters;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const char* const after = piece_end<kPattern>(characters, at, end);
    piece(std::string_view(at, static_cast<size_t>(after - at)));
    at = after;
  }
}

template <class Piece>
void split_by(SplitPattern pattern, std::string_view text, Piece&& piece) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return split_by<SplitPattern::kGpt2>(text, piece);
    case SplitPattern::kLlama3:
      return split_by<SplitPattern::kLlama3>(text, piece);
    case SplitPattern::kQwen2:
      return split_by<SplitPattern::kQwen2>(text, piece);
  }
}

}  // namespace lockstep::text
