// Masked language modeling (Devlin et al., "BERT", 2019, section 3.1). Some tokens of a row are
// masked, and the model predicts them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::data {

struct Masking {
  double probability = 0.15;  // probability that a token is selected
  double mask_share = 0.8;    // share of selected tokens that are replaced by the mask token
  double random_share =
      0.1;                 // share replaced by a random token; the remaining tokens are unchanged
  int64_t mask = 0;        // id of the mask token
  int64_t vocabulary = 0;  // random tokens are drawn from [0, vocabulary)
  std::vector<bool> specials = {};  // [vocabulary]: true for tokens that are never selected
  /// [vocabulary]: true for tokens that are selected together with the previous token (whole-word
  /// masking). Empty: each token is selected independently.
  std::vector<bool> continuing = {};
  uint64_t seed = 0;

  /// Masks tokens of a row. Masked tokens keep their labels; all other labels become kIgnored.
  /// Tokens without label are never selected. The random numbers depend only on the seed, on
  /// `sample` (the row's number in the sampler's stream) and on the token's position in the row.
  void apply(int64_t sample, std::span<int64_t> ids, std::span<int64_t> labels) const;
};

/// Returns [vocabulary]: true for tokens that continue a word, according to marks in the
/// vocabulary. WordPiece marks continuations ("##ing"); other vocabularies mark the start of a word
/// with a space. Throws Error (config) if the vocabulary has no such marks.
std::vector<bool> continuing_tokens(const text::Tokenizer& tokenizer);

}  // namespace lockstep::data
