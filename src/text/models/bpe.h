// Byte-pair encoding as Hugging Face's tokenizers do it.
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
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;   // before every character of a piece but the first
  std::string end_of_word_suffix;  // after the last character of a piece
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is a token is that token
};

class BpeModel final : public Model {
 public:
  /// What the pieces are made of.
  enum class Pieces {
    kText,   // the vocabulary's own characters
    kBytes,  // any bytes, which the vocabulary writes in GPT-2's alphabet (see can_take_bytes)
  };

  /// An Error names `source` and the merge whose parts or result are not in the vocabulary.
  BpeModel(BpeDescription description, Pieces pieces, const std::string& source);
  /// Bytes stand for characters of the alphabet one to one, unless prefixes, suffixes or fallbacks
  /// come between.
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
      byte_ids_{};  // kBytes: of each byte's character; -1: not in the vocabulary
  std::array<int32_t, 256> fallback_ids_{};  // of "<0x00>" to "<0xFF>"; -1: not in the vocabulary
  PairMap merges_;
  std::vector<int32_t> ids_by_rank_;
};

}  // namespace lockstep::text
