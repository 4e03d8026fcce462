// Tokenized corpus in a mapped file. It consists of a stream of token ids, the end of each
// document, and the length of each document's prompt, which has no loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"

namespace lockstep::data {

/// Position of a document in the stream. The prompt is [begin, prompt_end). The rest is
/// [prompt_end, end) and includes EOS.
struct DocumentSpan {
  int64_t begin = 0, prompt_end = 0, end = 0;
};

/// Open token file. docs/data.md describes the layout. Immutable and thread-safe. Any number of
/// processes can map the same file.
class TokenDataset {
 public:
  /// Opens the file and checks magic number, version, header hash and sizes. Throws Error (data)
  /// that describes the first mismatch.
  static std::shared_ptr<const TokenDataset> open(const std::filesystem::path& path);

  /// Reads the whole file and checks the content hash, the order of offsets and the range of ids.
  /// prepare_data() calls it, so ranks that open the file later do not need to.
  void verify() const;

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  int64_t pad() const { return pad_; }
  const std::string& key() const { return key_; }
  /// Returns a hash of tokens, documents and prompts. It does not depend on the source files.
  const std::string& content_hash() const { return content_hash_; }
  const std::filesystem::path& path() const { return path_; }
  bool has_prompts() const { return prompts_ != nullptr; }

  /// Returns true if the file has a loss mask: tokens outside of prompts may then have no loss.
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
  const uint16_t* narrow_ = nullptr;  // exactly one of narrow_ and wide_ is set
  const uint32_t* wide_ = nullptr;
  const uint64_t* ends_ = nullptr;     // [documents]
  const uint64_t* prompts_ = nullptr;  // [documents] number of prompt tokens; null if none
  const uint64_t* hidden_ = nullptr;   // loss mask, one bit per token; null if there is none
};

}  // namespace lockstep::data
