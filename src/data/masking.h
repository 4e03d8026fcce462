// Masked language modeling (Devlin et al., "BERT", 2019, section 3.1): some tokens of a row are
// masked and become its labels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::data {

struct Masking {
  double probability = 0.15;        // that a token is picked
  double mask_share = 0.8;          // share of selected tokens that are replaced by the mask token
  double random_share = 0.1;        // they become any token; the rest stay as they are
  int64_t mask = 0;                 // the mask's token
  int64_t vocabulary = 0;           // any token is one of [0, vocabulary)
  std::vector<bool> specials = {};  // [vocabulary]: tokens that are never picked
  /// [vocabulary]: tokens that are selected together with the previous one (whole-word masking);
  /// empty: each token is selected independently.
  std::vector<bool> continuing = {};
  uint64_t seed = 0;

  /// Masks tokens of a row and gives labels to those only; all others get kIgnored, and so do
  /// tokens without a label before. The draw depends only on the seed, on `sample` (the row's
  /// number in the sampler's stream) and on the token's position in the row.
  void apply(int64_t sample, std::span<int64_t> ids, std::span<int64_t> labels) const;
};

/// [vocabulary]: the tokens that continue a word according to the vocabulary's marks: WordPiece
/// marks continuations ("##ing"), others mark the beginning of a word (a space byte or mark).
/// Throws Error (kConfig) if it marks neither.
std::vector<bool> continuing_tokens(const text::Tokenizer& tokenizer);

}  // namespace lockstep::data
