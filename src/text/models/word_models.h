// Word-based models that need only a vocabulary: WordPiece (BERT) and WordLevel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/models/model.h"
#include "text/models/token_trie.h"
#include "text/models/vocabulary.h"

namespace lockstep::text {

/// Base class with a vocabulary and a token for unknown words.
class VocabularyModel : public Model {
 public:
  VocabularyModel(Vocabulary vocabulary, std::string unknown_token)
      : vocabulary_(std::move(vocabulary)),
        unknown_token_(std::move(unknown_token)) {}
  std::optional<int32_t> find(std::string_view token) const final {
    return vocabulary_.find(token);
  }
  std::optional<std::string_view> token(int32_t id) const final { return vocabulary_.token(id); }
  int64_t size() const final { return vocabulary_.size(); }
  int32_t highest_id() const final { return vocabulary_.highest_id(); }

 protected:
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Throws Error if the unknown token is not in the vocabulary.
  int32_t unknown_id() const;

 private:
  Vocabulary vocabulary_;
  std::string unknown_token_;
};

/// Maps each piece to its token, or to the unknown token.
class WordLevelModel final : public VocabularyModel {
 public:
  using VocabularyModel::VocabularyModel;
  void encode(
      std::string_view text,
      std::span<const std::string_view> pieces,
      Scratch& scratch,
      std::vector<int32_t>& ids) const override;
};

/// Greedy longest-match-first segmentation (Song et al., 2021, section 3). All tokens of a piece
/// except the first have a prefix such as "##". A piece that cannot be segmented or has more than
/// `longest_word` code points becomes the unknown token.
class WordPieceModel final : public VocabularyModel {
 public:
  WordPieceModel(
      Vocabulary vocabulary,
      std::string unknown_token,
      std::string_view continuing_prefix,
      size_t longest_word);
  void encode(
      std::string_view text,
      std::span<const std::string_view> pieces,
      Scratch& scratch,
      std::vector<int32_t>& ids) const override;

 private:
  bool take_apart(std::string_view piece, std::vector<int32_t>& ids) const;
  TokenTrie trie_;
  TokenTrie::Node continuing_;
  size_t longest_word_;
};

}  // namespace lockstep::text
