// Byte-pair encoding, compatible with Hugging Face tokenizers.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/models/model.h"
#include "text/models/pair_map.h"
#include "text/models/vocabulary.h"

namespace lockstep::text {

struct BpeDescription {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // ordered by rank
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;   // prepended to every character of a piece except the first
  std::string end_of_word_suffix;  // appended to the last character of a piece
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // pieces in the vocabulary are not merged
};

class BpeModel final : public Model {
 public:
  /// Alphabet of the encoded pieces.
  enum class Pieces {
    kText,   // characters of the vocabulary
    kBytes,  // arbitrary bytes, mapped to GPT-2's byte alphabet in the vocabulary (see
             // can_take_bytes)
  };

  /// Throws Error with `source` and the merge if a merge or its result is not in the vocabulary.
  BpeModel(BpeDescription description, Pieces pieces, const std::string& source);
  /// Returns true if the model can encode bytes directly. Bytes then map one to one to characters
  /// of the alphabet. False for models with prefixes, suffixes or byte fallback.
  static bool can_take_bytes(const BpeDescription& description);

  void encode(
      std::string_view text,
      std::span<const std::string_view> pieces,
      Scratch& scratch,
      std::vector<int32_t>& ids) const override;
  std::unique_ptr<Scratch> make_scratch() const override;
  std::optional<int32_t> find(std::string_view token) const override {
    return vocabulary_.find(token);
  }
  std::optional<std::string_view> token(int32_t id) const override { return vocabulary_.token(id); }
  int64_t size() const override { return vocabulary_.size(); }
  int32_t highest_id() const override { return vocabulary_.highest_id(); }

 private:
  struct Memory;
  struct Unknown;
  void read_merges(
      const std::vector<std::pair<std::string, std::string>>& merges, const std::string& source);
  void encode_piece(std::string_view piece, Memory& memory) const;
  void read_bytes(std::string_view piece, std::vector<int32_t>& symbols) const;
  void read_characters(std::string_view piece, std::vector<int32_t>& symbols) const;
  bool fall_back_to_bytes(std::string_view character, std::vector<int32_t>& symbols) const;
  int32_t unknown_id() const;

  Vocabulary vocabulary_;
  Pieces pieces_;
  std::optional<std::string> unknown_token_;
  std::optional<int32_t> unknown_id_;
  std::string continuing_prefix_, end_of_word_suffix_;
  bool fuse_unknown_, byte_fallback_, ignore_merges_;
  std::array<int32_t, 256>
      byte_ids_{};  // kBytes: id of each byte's character; -1 if not in the vocabulary
  std::array<int32_t, 256>
      fallback_ids_{};  // ids of "<0x00>" to "<0xFF>"; -1 if not in the vocabulary
  PairMap merges_;
  std::vector<int32_t> ids_by_rank_;
};

}  // namespace lockstep::text
