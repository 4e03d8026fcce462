// Implements the Unigram model: Viterbi decoding over the token trie.
#include "text/models/unigram.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

constexpr double kUnknownPenalty =
    10;  // score penalty of an unknown character, relative to the rarest token
constexpr int32_t kUnknown = -1;
constexpr uint32_t kUnreached = std::numeric_limits<uint32_t>::max();

TokenTrie piece_trie(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int32_t id = 0; id <= vocabulary.highest_id(); ++id) {
    tokens.emplace_back(*vocabulary.token(id), id);
  }
  return TokenTrie(std::move(tokens));
}

}  // namespace

struct UnigramModel::Memory final : Model::Scratch {
  /// Best path to a byte position of the piece.
  struct Step {
    double score = 0;
    uint32_t begin = kUnreached;
    int32_t id = 0;
  };
  std::vector<Step> steps;
  std::vector<std::string_view> tokens;
};

UnigramModel::UnigramModel(UnigramDescription description)
    : description_(std::move(description)),
      trie_(piece_trie(description_.vocabulary)) {
  double lowest = std::numeric_limits<double>::infinity();
  for (const double score : description_.scores) {
    lowest = std::min(lowest, score);
  }
  unknown_score_ = lowest - kUnknownPenalty;
  for (int byte = 0; byte < 256; ++byte) {
    fallback_ids_[static_cast<size_t>(byte)] = find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

std::unique_ptr<Model::Scratch> UnigramModel::make_scratch() const {
  return std::make_unique<Memory>();
}

int32_t UnigramModel::unknown_id() const {
  if (!description_.unknown_id) {
    throw Error(
        ErrorKind::kData,
        "the text contains a character that is not in the vocabulary, and the model has no unk_id",
        "set model.unk_id of tokenizer.json");
  }
  return *description_.unknown_id;
}

void UnigramModel::find_best(std::string_view piece, Memory& memory) const {
  std::vector<Memory::Step>& steps = memory.steps;
  steps.assign(piece.size() + 1, {});
  for (size_t begin = 0; begin < piece.size();) {
    const double before = steps[begin].score;
    const size_t character = std::min(code_point_length(piece[begin]), piece.size() - begin);
    const auto offer = [&](size_t end, double score, int32_t id) {
      Memory::Step& step = steps[end];
      if (step.begin == kUnreached || score + before > step.score) {
        step = {score + before, static_cast<uint32_t>(begin), id == kUnknown ? unknown_id() : id};
      }
    };
    bool has_character = false;
    TokenTrie::Node node = TokenTrie::kRoot;
    for (size_t at = begin; at < piece.size(); ++at) {
      node = trie_.child(node, piece[at]);
      if (node == TokenTrie::kNone) {
        break;
      }
      if (const int32_t id = trie_.id(node); id >= 0) {
        offer(at + 1, description_.scores[static_cast<size_t>(id)], id);
        has_character = has_character || at + 1 - begin == character;
      }
    }
    if (!has_character) {
      offer(begin + character, unknown_score_, kUnknown);
    }
    begin += character;
  }
}

void UnigramModel::encode(
    std::string_view /*text*/,
    std::span<const std::string_view> pieces,
    Scratch& scratch,
    std::vector<int32_t>& ids) const {
  auto& memory = static_cast<Memory&>(scratch);
  for (const std::string_view piece : pieces) {
    find_best(piece, memory);
    // Backtracks from the end. Adjacent unknown characters become one token.
    memory.tokens.clear();
    bool unknown_after = false;
    for (size_t end = piece.size(); end > 0;) {
      const Memory::Step& step = memory.steps[end];
      const bool unknown = step.id == description_.unknown_id;
      const std::string_view token = piece.substr(step.begin, end - step.begin);
      if (unknown && unknown_after) {
        std::string_view& later = memory.tokens.back();
        later = std::string_view(token.data(), token.size() + later.size());
      } else {
        memory.tokens.push_back(token);
      }
      unknown_after = unknown;
      end = step.begin;
    }
    std::for_each(memory.tokens.rbegin(), memory.tokens.rend(), [&](std::string_view token) {
      add_token(token, ids);
    });
  }
}

void UnigramModel::add_token(std::string_view token, std::vector<int32_t>& ids) const {
  if (const std::optional<int32_t> id = find(token)) {
    ids.push_back(*id);
    return;
  }
  const auto fallback = [&](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  const bool covered =
      std::all_of(token.begin(), token.end(), [&](char byte) { return fallback(byte) >= 0; });
  if (!description_.byte_fallback || !covered) {
    ids.push_back(unknown_id());
    return;
  }
  std::transform(token.begin(), token.end(), std::back_inserter(ids), fallback);
}

}  // namespace lockstep::text
