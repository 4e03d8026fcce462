// Training of GPT-2 style byte-level BPE tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::text {

struct BpeTrainingOptions {
  /// Total number of tokens: 256 bytes, special tokens and merges. The result is smaller if the
  /// text has too few distinct pairs.
  int64_t vocabulary_size = 8192;
  /// Special tokens. They get the first ids, in this order. The first special token is used as BOS,
  /// EOS and padding.
  std::vector<std::string> special_tokens{"<|endoftext|>"};
  /// Minimum count for merging a pair.
  int64_t minimum_count = 2;
};

/// Byte-pair encoding (Sennrich, Haddow and Birch, 2016) over the bytes of pieces split with
/// GPT-2's pattern. Deterministic: the most frequent pair is merged first; among ties, the pair
/// with the lowest ids. The result does not depend on the order of documents. Counting takes time
/// linear in the text, and training linear in the occurrences of merged pairs.
class BpeTrainer {
 public:
  /// Throws Error (config) if the size is below the minimum, or a special token is empty or
  /// duplicated.
  explicit BpeTrainer(BpeTrainingOptions options);

  /// Counts the pieces of a document. Ill-formed UTF-8 counts as U+FFFD. Special tokens are not
  /// counted.
  void add(std::string_view document);
  /// Returns the number of bytes added so far.
  int64_t bytes() const { return bytes_; }
  /// Returns tokenizer.json and tokenizer_config.json, compatible with Hugging Face's library.
  TokenizerFiles train() const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  void count(std::string_view text);

  BpeTrainingOptions options_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> pieces_;
  int64_t bytes_ = 0;
};

/// Trains on files, one document per file. Writes tokenizer.json and tokenizer_config.json to
/// `folder` and returns the tokenizer.
std::shared_ptr<const Tokenizer> train_byte_level_bpe(
    const std::vector<std::filesystem::path>& files,
    const BpeTrainingOptions& options,
    const std::filesystem::path& folder);

}  // namespace lockstep::text
