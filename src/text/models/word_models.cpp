// Implements the WordLevel and WordPiece models.
#include "text/models/word_models.h"

#include "base/error.h"
#include "base/format.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

TokenTrie word_trie(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int32_t id = 0; id <= vocabulary.highest_id(); ++id) {
    if (const std::optional<std::string_view> token = vocabulary.token(id)) {
      tokens.emplace_back(*token, id);
    }
  }
  return TokenTrie(std::move(tokens));
}

}  // namespace

int32_t VocabularyModel::unknown_id() const {
  const std::optional<int32_t> id = vocabulary_.find(unknown_token_);
  if (!id) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the text contains a word that is not in the vocabulary, and neither is the unk_token "
            "\"{}\"",
            unknown_token_),
        "add the token to model.vocab of tokenizer.json, or set model.unk_token to a token of the "
        "vocabulary");
  }
  return *id;
}

void WordLevelModel::encode(
    std::string_view /*text*/,
    std::span<const std::string_view> pieces,
    Scratch& /*scratch*/,
    std::vector<int32_t>& ids) const {
  for (const std::string_view piece : pieces) {
    const std::optional<int32_t> id = vocabulary().find(piece);
    ids.push_back(id ? *id : unknown_id());
  }
}

WordPieceModel::WordPieceModel(
    Vocabulary vocabulary,
    std::string unknown_token,
    std::string_view continuing_prefix,
    size_t longest_word)
    : VocabularyModel(std::move(vocabulary), std::move(unknown_token)),
      trie_(word_trie(VocabularyModel::vocabulary())),
      continuing_(trie_.walk(continuing_prefix)),
      longest_word_(longest_word) {}

void WordPieceModel::encode(
    std::string_view /*text*/,
    std::span<const std::string_view> pieces,
    Scratch& /*scratch*/,
    std::vector<int32_t>& ids) const {
  for (const std::string_view piece : pieces) {
    const size_t before = ids.size();
    if (count_code_points(piece) > longest_word_ || !take_apart(piece, ids)) {
      ids.resize(before);
      ids.push_back(unknown_id());
    }
  }
}

bool WordPieceModel::take_apart(std::string_view piece, std::vector<int32_t>& ids) const {
  for (size_t begin = 0; begin < piece.size();) {
    TokenTrie::Node node = begin == 0 ? TokenTrie::kRoot : continuing_;
    size_t longest = 0;
    int32_t id = -1;
    for (size_t at = begin; node != TokenTrie::kNone && at < piece.size(); ++at) {
      node = trie_.child(node, piece[at]);
      if (node != TokenTrie::kNone && trie_.id(node) >= 0) {
        longest = at + 1 - begin;
        id = trie_.id(node);
      }
    }
    if (longest == 0) {
      return false;
    }
    ids.push_back(id);
    begin += longest;
  }
  return true;
}

}  // namespace lockstep::text
