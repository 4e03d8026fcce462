// Training a byte-level BPE: the vocabulary of GPT-2's kind that a text asks for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::text {

struct BpeTrainingOptions {
  /// Tokens in all: 256 bytes, the special tokens, and as many merges as fit. Fewer where the text
  /// has no more pairs.
  int64_t vocabulary_size = 8192;
  /// The first ids, in this order. The first one is the beginning, end and padding of texts.
  std::vector<std::string> special_tokens{"<|endoftext|>"};
  /// A pair that occurs less often is not merged.
  int64_t minimum_count = 2;
};

/// Byte-pair encoding (Sennrich, Haddow and Birch, 2016) over the bytes of the pieces that GPT-2's
/// pattern cuts text into. Deterministic: the most frequent pair first, of equals the one with the
/// lower ids; the order of documents does not matter. Time is linear in the text for counting, and
/// in the occurrences of merged pairs after that.
class BpeTrainer {
 public:
  /// An Error (kConfig) tells of a size that holds no bytes, and of special tokens that are empty
  /// or given twice.
  explicit BpeTrainer(BpeTrainingOptions options);

  /// Counts a document; ill-formed UTF-8 counts as U+FFFD, a special token in it is not counted.
  void add(std::string_view document);
  /// The bytes added so far.
  int64_t bytes() const { return bytes_; }
  /// tokenizer.json and tokenizer_config.json, which Hugging Face's library reads too.
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

/// The files in the order given, as documents. Writes `folder`/tokenizer.json and
/// tokenizer_config.json, and returns the tokenizer.
std::shared_ptr<const Tokenizer> train_byte_level_bpe(
    const std::vector<std::filesystem::path>& files,
    const BpeTrainingOptions& options,
    const std::filesystem::path& folder);

}  // namespace lockstep::text
