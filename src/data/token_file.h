// Layout and writer of token files. docs/data.md describes the format; token_dataset.h reads it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace lockstep::data {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

/// First 4096 bytes of the file, zero-padded. These arrays follow: the tokens (uint16 or uint32,
/// zero-padded to a multiple of 8 bytes); the end of each document in the stream (uint64); with
/// kHasPrompts, the number of prompt tokens of each document (uint64); with kHasHidden, one bit per
/// token, which is 1 if the token has no loss (uint64 words, lowest bit first).
struct TokenFileHeader {
  static constexpr size_t kSpace = 4096;
  static constexpr uint32_t kVersion = 1;
  static constexpr std::array<char, 8> kMagic{'L', 'O', 'C', 'K', 'T', 'O', 'K', '\n'};
  static constexpr uint64_t kHasPrompts = 1;
  static constexpr uint64_t kHasHidden = 2;

  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t token_bytes = 2;
  uint64_t tokens = 0;
  uint64_t documents = 0;
  uint64_t vocabulary_size = 0;
  uint64_t pad = 0;
  uint64_t flags = 0;
  std::array<char, 32> key{};           // cache key
  std::array<char, 32> content_hash{};  // XXH3-128 of everything after the header
  std::array<char, 32> header_hash{};   // of the bytes before this field

  std::string hash() const;
  /// Returns the number of bytes of the tokens and their padding.
  uint64_t token_space() const { return (tokens * token_bytes + 7) / 8 * 8; }
  /// Returns the number of words of the loss mask.
  uint64_t hidden_words() const { return (flags & kHasHidden) != 0 ? (tokens + 63) / 64 : 0; }
};
static_assert(sizeof(TokenFileHeader) == 152 && std::is_trivially_copyable_v<TokenFileHeader>);

/// Writes a token file under a temporary name and renames it when it is complete. Data is streamed;
/// document ends are written to a temporary file first. Not copyable or movable. If commit() is not
/// called, the destructor removes the file.
class TokenFileWriter {
 public:
  /// `pad` is the id of the padding token, which is stored for readers.
  TokenFileWriter(
      std::filesystem::path path, const std::string& key, int64_t vocabulary_size, int64_t pad);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  /// Adds tokens to the current document. `hidden` is empty or has one value per token, nonzero if
  /// the token has no loss. Throws Error (internal) if an id is outside the vocabulary.
  void add(std::span<const int32_t> ids, std::span<const uint8_t> hidden = {});
  void end_document(int64_t prompt_tokens);
  int64_t tokens() const { return static_cast<int64_t>(header_.tokens); }
  int64_t documents() const { return static_cast<int64_t>(header_.documents); }

  /// Syncs the file, renames it and syncs the folder.
  void commit();

 private:
  /// Growing file that is written in large blocks.
  struct Stream {
    Stream(const std::filesystem::path& path, uint64_t offset);
    void write(const void* data, size_t size);
    void flush();
    File file;
    uint64_t offset;
    std::vector<std::byte> buffer;
    Hasher* hasher = nullptr;
  };
  void append(Stream& from);
  /// Adds loss mask bits for the tokens that are added next.
  void add_hidden(size_t count, std::span<const uint8_t> hidden);
  void add_bit(bool hidden);
  void remove_lists();

  std::filesystem::path path_, temporary_, ends_path_, prompts_path_, hidden_path_;
  TokenFileHeader header_;
  Hasher hasher_;
  std::unique_ptr<Stream> tokens_, ends_, prompts_;  // prompts_ is null until the first prompt
  std::unique_ptr<Stream> hidden_;                   // null until the first token without loss
  uint64_t word_ = 0, bits_ = 0;                     // current word, and its number of bits
  bool committed_ = false;
};

}  // namespace lockstep::data
