// A tokenized corpus in a mapped file: one stream of token ids, where each document ends, and how
// much of each is a prompt that the loss leaves out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"

namespace lockstep::data {

/// A document's place in the stream: its prompt is [begin, prompt_end), its rest ends at `end`,
/// which counts the end-of-text token.
struct DocumentSpan {
  int64_t begin = 0, prompt_end = 0, end = 0;
};

/// An open token file (docs/data.md has the layout). Immutable and thread-safe; any number of
/// processes map it.
class TokenDataset {
 public:
  /// Opens and checks the header: magic, version, its own hash, and the sizes against the file's.
  /// An Error of kind kData says what does not fit.
  static std::shared_ptr<const TokenDataset> open(const std::filesystem::path& path);

  /// Reads all of it once: the hash of the contents, and that offsets are in order and ids in the
  /// vocabulary. An Error says what is wrong. prepare_data does this; the ranks that open the file
  /// after it need not.
  void verify() const;

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  int64_t pad() const { return pad_; }
  const std::string& key() const { return key_; }
  /// A hash of tokens, documents and prompts: the same for the same text, wherever it came from.
  const std::string& content_hash() const { return content_hash_; }
  const std::filesystem::path& path() const { return path_; }
  bool has_prompts() const { return prompts_ != nullptr; }

  /// Whether tokens have no loss beside those of prompts.
  bool has_hidden() const { return hidden_ != nullptr; }
  bool is_hidden(int64_t position) const {
    const auto at = static_cast<uint64_t>(position);
    return hidden_ != nullptr && (hidden_[at / 64] >> at % 64 & 1) != 0;
  }

  int64_t token(int64_t position) const {
    return narrow_ != nullptr ? narrow_[position] : wide_[position];
  }
  /// ids of [begin, begin + out.size()).
  void read(int64_t begin, std::span<int64_t> out) const;
  DocumentSpan document(int64_t index) const;
  /// The document that holds a token, by binary search.
  int64_t document_of(int64_t position) const;

 private:
  TokenDataset() = default;

  MappedFile file_;
  std::filesystem::path path_;
  std::string key_, content_hash_;
  int64_t tokens_ = 0, documents_ = 0, vocabulary_size_ = 0, pad_ = 0;
  const uint16_t* narrow_ = nullptr;  // one of the two
  const uint32_t* wide_ = nullptr;
  const uint64_t* ends_ = nullptr;  // [documents]
  const uint64_t* prompts_ =
      nullptr;                        // [documents] tokens of the prompt; null where there are none
  const uint64_t* hidden_ = nullptr;  // a bit for each token; null where there are none
};

}  // namespace lockstep::data
