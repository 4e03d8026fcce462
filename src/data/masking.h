// Masked language modelling (Devlin et al., "BERT", 2019, section 3.1): some tokens of a row are
// hidden, and are what it is to be told.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::data {

struct Masking {
  double probability = 0.15;        // that a token is picked
  double mask_share = 0.8;          // of those that are picked: they become the mask's token
  double random_share = 0.1;        // they become any token; the rest stay as they are
  int64_t mask = 0;                 // the mask's token
  int64_t vocabulary = 0;           // any token is one of [0, vocabulary)
  std::vector<bool> specials = {};  // [vocabulary]: tokens that are never picked
  /// [vocabulary]: tokens that are picked with the one before them, where it is a text's too;
  /// empty: each is picked by itself.
  std::vector<bool> continuing = {};
  uint64_t seed = 0;

  /// Hides tokens of a row, and gives labels to those alone: kIgnored for all others, and for those
  /// that had none before. What is drawn depends on the seed, on `sample` (the row's number in the
  /// sampler's stream) and on the token's place in the row alone.
  void apply(int64_t sample, std::span<int64_t> ids, std::span<int64_t> labels) const;
};

/// [vocabulary]: the tokens that begin no word, by how the vocabulary marks them: WordPiece those
/// that go on ("##ing"), others those that begin one (a space, as a byte or as a mark). Error
/// (kConfig): it marks neither.
std::vector<bool> continuing_tokens(const text::Tokenizer& tokenizer);

}  // namespace lockstep::data
