// Unigram language model (Kudo, 2018), compatible with Hugging Face tokenizers. Finds the most
// probable token sequence with the Viterbi algorithm in double precision. Ties are resolved in
// favor of the first path found.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "text/models/model.h"
#include "text/models/token_trie.h"
#include "text/models/vocabulary.h"

namespace lockstep::text {

struct UnigramDescription {
  Vocabulary vocabulary;
  std::vector<double> scores;  // indexed by id
  std::optional<int32_t> unknown_id;
  bool byte_fallback = false;
};

class UnigramModel final : public Model {
 public:
  explicit UnigramModel(UnigramDescription description);

  void encode(
      std::string_view text,
      std::span<const std::string_view> pieces,
      Scratch& scratch,
      std::vector<int32_t>& ids) const override;
  std::unique_ptr<Scratch> make_scratch() const override;
  std::optional<int32_t> find(std::string_view token) const override {
    return description_.vocabulary.find(token);
  }
  std::optional<std::string_view> token(int32_t id) const override {
    return description_.vocabulary.token(id);
  }
  int64_t size() const override { return description_.vocabulary.size(); }
  int32_t highest_id() const override { return description_.vocabulary.highest_id(); }

 private:
  struct Memory;
  void find_best(std::string_view piece, Memory& memory) const;
  void add_token(std::string_view token, std::vector<int32_t>& ids) const;
  int32_t unknown_id() const;

  UnigramDescription description_;
  TokenTrie trie_;
  double unknown_score_;
  std::array<int32_t, 256>
      fallback_ids_{};  // ids of "<0x00>" to "<0xFF>"; -1 if not in the vocabulary
};

}  // namespace lockstep::text
