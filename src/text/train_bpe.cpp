// Implements training of byte-level BPE tokenizers.
#include "text/train_bpe.h"

#include <algorithm>
#include <array>
#include <queue>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "text/models/vocabulary.h"
#include "text/stages/added_tokens.h"
#include "text/stages/split_patterns.h"
#include "text/unicode/byte_alphabet.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

using Pair = std::pair<int32_t, int32_t>;

/// Distinct pieces as linked lists of symbols, with the positions of each adjacent pair.
class Merging {
 public:
  Merging(
      const std::vector<std::pair<std::string_view, int64_t>>& pieces,
      const std::array<int32_t, 256>& byte_ids);

  struct Best {
    Pair pair;
    int64_t count;
  };
  /// Returns the most frequent pair; among ties, the pair with the lowest ids. Its count is 0 if no
  /// pair remains.
  Best best();
  /// Replaces all occurrences of the pair with `id`, from left to right.
  void merge(const Pair& pair, int32_t id);

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr int32_t kGone = -1;
  struct Symbol {
    int32_t id;
    uint32_t previous, next;
    uint32_t piece;
  };
  struct Occurrences {
    int64_t count = 0;
    std::vector<uint32_t> places;  // positions of the left symbol; some may be stale
  };
  struct HashPair {
    size_t operator()(const Pair& pair) const {
      const auto key = static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 |
                       static_cast<uint32_t>(pair.second);
      return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15ULL >> 16);
    }
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  void add(const Pair& pair, uint32_t place, int64_t count);
  void remove(const Pair& pair, int64_t count);

  std::vector<Symbol> symbols_;
  std::vector<int64_t> piece_counts_;
  std::unordered_map<Pair, Occurrences, HashPair> pairs_;
  std::priority_queue<Candidate> queue_;  // counts may be stale; checked when popped
  std::set<Pair> grown_;                  // pairs whose count grew in the current merge
};

Merging::Merging(
    const std::vector<std::pair<std::string_view, int64_t>>& pieces,
    const std::array<int32_t, 256>& byte_ids) {
  for (const auto& [piece, count] : pieces) {
    const auto index = static_cast<uint32_t>(piece_counts_.size());
    piece_counts_.push_back(count);
    for (size_t i = 0; i < piece.size(); ++i) {
      const auto place = static_cast<uint32_t>(symbols_.size());
      symbols_.push_back(
          {byte_ids[static_cast<uint8_t>(piece[i])],
           i == 0 ? kNone : place - 1,
           i + 1 == piece.size() ? kNone : place + 1,
           index});
      if (i > 0) {
        add({symbols_[place - 1].id, symbols_[place].id}, place - 1, count);
      }
    }
  }
  for (const auto& [pair, occurrences] : pairs_) {
    queue_.push({occurrences.count, pair});
  }
  grown_.clear();
}

void Merging::add(const Pair& pair, uint32_t place, int64_t count) {
  Occurrences& occurrences = pairs_[pair];
  occurrences.count += count;
  occurrences.places.push_back(place);
  grown_.insert(pair);
}

void Merging::remove(const Pair& pair, int64_t count) {
  if (const auto found = pairs_.find(pair); found != pairs_.end()) {
    found->second.count -= count;
  }
}

Merging::Best Merging::best() {
  while (!queue_.empty()) {
    const Candidate top = queue_.top();
    const auto found = pairs_.find(top.pair);
    const int64_t count = found == pairs_.end() ? 0 : found->second.count;
    if (count == top.count) {
      return {top.pair, count};
    }
    queue_.pop();
    if (count > 0 && count < top.count) {
      queue_.push({count, top.pair});
    }
  }
  return {{}, 0};
}

void Merging::merge(const Pair& pair, int32_t id) {
  auto node = pairs_.extract(pair);
  std::vector<uint32_t>& places = node.mapped().places;
  std::sort(places.begin(), places.end());  // left to right, as in encoding
  grown_.clear();
  for (const uint32_t place : places) {
    Symbol& left = symbols_[place];
    if (left.id != pair.first || left.next == kNone || symbols_[left.next].id != pair.second) {
      continue;
    }
    Symbol& right = symbols_[left.next];
    const int64_t count = piece_counts_[left.piece];
    if (left.previous != kNone) {
      const int32_t before = symbols_[left.previous].id;
      remove({before, left.id}, count);
      add({before, id}, left.previous, count);
    }
    if (right.next != kNone) {
      const int32_t after = symbols_[right.next].id;
      remove({right.id, after}, count);
      add({id, after}, place, count);
      symbols_[right.next].previous = place;
    }
    left.id = id;
    left.next = right.next;
    right.id = kGone;
  }
  pairs_.erase(pair);  // erased last: merging "aaa" creates the entry again
  for (const Pair& changed : grown_) {
    const auto found = pairs_.find(changed);
    if (found != pairs_.end() && found->second.count > 0) {
      queue_.push({found->second.count, changed});
    }
  }
}

/// Vocabulary and merges during training. Ids: special tokens, then the alphabet by code point,
/// then merges.
struct Growing {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, int32_t> ids;
  std::vector<std::pair<std::string, std::string>> merges;

  int32_t add(const std::string& token) {
    const auto [found, is_new] = ids.try_emplace(token, static_cast<int32_t>(tokens.size()));
    if (is_new) {
      tokens.push_back(token);
    }
    return found->second;
  }
};

nlohmann::ordered_json added_token(size_t id, const std::string& content) {
  return {
      {"id", id},
      {"content", content},
      {"single_word", false},
      {"lstrip", false},
      {"rstrip", false},
      {"normalized", false},
      {"special", true}};
}

nlohmann::ordered_json byte_level(bool add_prefix_space) {
  return {
      {"type", "ByteLevel"},
      {"add_prefix_space", add_prefix_space},
      {"trim_offsets", true},
      {"use_regex", true}};
}

std::string tokenizer_text(const Growing& growing, size_t specials) {
  nlohmann::ordered_json added = nlohmann::ordered_json::array();
  for (size_t id = 0; id < specials; ++id) {
    added.push_back(added_token(id, growing.tokens[id]));
  }
  nlohmann::ordered_json vocabulary = nlohmann::ordered_json::object();
  auto& entries = vocabulary.get_ref<nlohmann::ordered_json::object_t&>();
  for (size_t id = 0; id < growing.tokens.size(); ++id) {
    // Uses push_back because operator[] searches all entries for the key.
    entries.push_back({growing.tokens[id], id});
  }
  nlohmann::ordered_json merges = nlohmann::ordered_json::array();
  for (const auto& [left, right] : growing.merges) {
    merges.push_back({left, right});
  }
  const nlohmann::ordered_json json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level(false)},
      {"post_processor", byte_level(false)},
      {"decoder", byte_level(false)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", std::move(vocabulary)},
        {"merges", std::move(merges)}}}};
  return json.dump(2) + "\n";
}

std::string config_text(const std::vector<std::string>& specials) {
  nlohmann::ordered_json json{
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"add_prefix_space", false},
      {"clean_up_tokenization_spaces", false}};
  if (!specials.empty()) {
    for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
      json[key] = specials[0];
    }
  }
  return json.dump(2) + "\n";
}

void check(const BpeTrainingOptions& options) {
  const auto fixed = static_cast<int64_t>(256 + options.special_tokens.size());
  if (options.vocabulary_size < fixed || options.vocabulary_size > kMaximumTokenId + 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("a vocabulary of {} tokens cannot be trained", options.vocabulary_size),
        fmt::format(
            "choose {} (256 bytes and {} special tokens) to {} tokens",
            fixed,
            options.special_tokens.size(),
            kMaximumTokenId + 1));
  }
  std::set<std::string_view> seen;
  for (const std::string& token : options.special_tokens) {
    const bool is_byte = count_code_points(token) == 1 && alphabet_to_bytes(token).has_value();
    if (token.empty() || valid_utf8_prefix(token) != token.size() || is_byte ||
        !seen.insert(token).second) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("\"{}\" cannot be a special token", replace_invalid_utf8(token)),
          "list each special token once, as UTF-8 text other than a byte's character, such as "
          "<|endoftext|>");
    }
  }
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainingOptions options) : options_(std::move(options)) {
  check(options_);
}

void BpeTrainer::add(std::string_view document) {
  bytes_ += static_cast<int64_t>(document.size());
  std::string valid;
  if (valid_utf8_prefix(document) != document.size()) {
    valid = replace_invalid_utf8(document);
    document = valid;
  }
  TokenFinder specials;
  for (const std::string& token : options_.special_tokens) {
    specials.add(token, 0);
  }
  size_t from = 0;
  while (!specials.empty()) {
    const std::optional<TokenFinder::Match> match = specials.find(document, from);
    if (!match) {
      break;
    }
    count(document.substr(from, match->begin - from));
    from = match->end;
  }
  count(document.substr(from));
}

void BpeTrainer::count(std::string_view text) {
  split_by<SplitPattern::kGpt2>(text, [&](std::string_view piece) {
    const auto found = pieces_.find(piece);
    if (found == pieces_.end()) {
      pieces_.emplace(piece, 1);
    } else {
      ++found->second;
    }
  });
}

TokenizerFiles BpeTrainer::train() const {
  Growing growing;
  for (const std::string& token : options_.special_tokens) {
    growing.add(token);
  }
  std::array<int32_t, 256> byte_ids{};
  for (char32_t character = 0; character < 0x200; ++character) {
    if (const int byte = character_to_byte(character); byte >= 0) {
      std::string token;
      append_code_point(token, character);
      byte_ids[static_cast<size_t>(byte)] = growing.add(token);
    }
  }
  std::vector<std::pair<std::string_view, int64_t>> pieces(pieces_.begin(), pieces_.end());
  std::sort(pieces.begin(), pieces.end());
  size_t symbols = 0;
  for (const auto& [piece, count] : pieces) {
    symbols += piece.size();
  }
  if (symbols >= UINT32_MAX) {
    throw Error(
        ErrorKind::kData,
        "the text has 4 GiB or more of distinct words, too much to train on",
        "train the tokenizer on a sample of the text");
  }
  Merging merging(pieces, byte_ids);
  while (static_cast<int64_t>(growing.tokens.size()) < options_.vocabulary_size) {
    const Merging::Best best = merging.best();
    if (best.count < std::max<int64_t>(options_.minimum_count, 1)) {
      break;
    }
    const std::string left = growing.tokens[static_cast<size_t>(best.pair.first)];
    const std::string right = growing.tokens[static_cast<size_t>(best.pair.second)];
    merging.merge(best.pair, growing.add(left + right));
    growing.merges.emplace_back(left, right);
  }
  return {
      "",
      {{"tokenizer.json", tokenizer_text(growing, options_.special_tokens.size())},
       {"tokenizer_config.json", config_text(options_.special_tokens)}}};
}

std::shared_ptr<const Tokenizer> train_byte_level_bpe(
    const std::vector<std::filesystem::path>& files,
    const BpeTrainingOptions& options,
    const std::filesystem::path& folder) {
  BpeTrainer trainer(options);
  for (const std::filesystem::path& file : files) {
    trainer.add(MappedFile(file).text());
  }
  if (trainer.bytes() == 0) {
    throw Error(
        ErrorKind::kData,
        "there is no text to train a tokenizer on",
        "pass files that contain text");
  }
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::parse(trainer.train());
  tokenizer->save(folder);
  return tokenizer;
}

}  // namespace lockstep::text
