// A tokenized corpus in a mapped file: a stream of token ids, the end of each document, and the
// length of its prompt, which has no loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"

namespace lockstep::data {

/// Position of a document in the stream. Its prompt is [begin, prompt_end); the rest ends at `end`
/// and includes EOS.
struct DocumentSpan {
  int64_t begin = 0, prompt_end = 0, end = 0;
};

/// Open token file (see docs/data.md for the layout). Immutable and thread-safe; any number of
/// processes can map it.
class TokenDataset {
 public:
  /// Opens the file and checks magic number, version, header hash and sizes. Throws Error (data)
  /// that describes the mismatch.
  static std::shared_ptr<const TokenDataset> open(const std::filesystem::path& path);

  /// Reads everything once and checks the content hash, the order of offsets and the range of ids.
  /// Called by prepare_data(); ranks that open the file later do not need it.
  void verify() const;

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  int64_t pad() const { return pad_; }
  const std::string& key() const { return key_; }
  /// Hash of tokens, documents and prompts; independent of the source files.
  const std::string& content_hash() const { return content_hash_; }
  const std::filesystem::path& path() const { return path_; }
  bool has_prompts() const { return prompts_ != nullptr; }

  /// True if tokens outside of prompts may have no loss.
  bool has_hidden() const { return hidden_ != nullptr; }
  bool is_hidden(int64_t position) const {
    const auto at = static_cast<uint64_t>(position);
    return hidden_ != nullptr && (hidden_[at / 64] >> at % 64 & 1) != 0;
  }

  int64_t token(int64_t position) const {
    return narrow_ != nullptr ? narrow_[position] : wide_[position];
  }
  /// Reads the ids of [begin, begin + out.size()).
  void read(int64_t begin, std::span<int64_t> out) const;
  DocumentSpan document(int64_t index) const;
  /// Returns the document that contains a token, by binary search.
  int64_t document_of(int64_t position) const;

 private:
  TokenDataset() = default;

  MappedFile file_;
  std::filesystem::path path_;
  std::string key_, content_hash_;
  int64_t tokens_ = 0, documents_ = 0, vocabulary_size_ = 0, pad_ = 0;
  const uint16_t* narrow_ = nullptr;  // one of the two is set
  const uint32_t* wide_ = nullptr;
  const uint64_t* ends_ = nullptr;     // [documents]
  const uint64_t* prompts_ = nullptr;  // [documents] tokens of the prompt; null if there are none
  const uint64_t* hidden_ = nullptr;   // one bit per token; null if there are none
};

}  // namespace lockstep::data
