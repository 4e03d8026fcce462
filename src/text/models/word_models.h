// The models that take words apart by their vocabulary alone: WordPiece (BERT) and WordLevel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/models/model.h"
#include "text/models/token_trie.h"
#include "text/models/vocabulary.h"

namespace lockstep::text {

/// What the two have in common: a vocabulary and a token for what it lacks.
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
  /// An Error where the vocabulary lacks it.
  int32_t unknown_id() const;

 private:
  Vocabulary vocabulary_;
  std::string unknown_token_;
};

/// Each piece is a token, or unknown.
class WordLevelModel final : public VocabularyModel {
 public:
  using VocabularyModel::VocabularyModel;
  void encode(
      std::string_view text,
      std::span<const std::string_view> pieces,
      Scratch& scratch,
      std::vector<int32_t>& ids) const override;
};

/// The longest token that a piece begins with, then the longest that goes on, written with a prefix
/// such as "##"; a piece that cannot be taken apart, or of more than `longest_word` code points, is
/// unknown (Song et al., 2021, section 3).
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
