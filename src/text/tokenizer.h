// Tokenizers, which convert text to ids and back. Produce the same ids as Hugging Face tokenizers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/stages/row_template.h"

namespace lockstep::text {

/// Handling of special tokens ("<|endoftext|>") in input text.
enum class SpecialTokens {
  kRecognise,  // map each to its id, as Hugging Face tokenizers do
  kAsText,     // encode as ordinary text; use this for untrusted input
};
/// Selects whether to apply the post-processor's template, such as <s> before the text.
enum class Template { kApply, kOmit };
/// Handling of special tokens in decoded text.
enum class DecodedSpecials { kKeep, kSkip };

/// Tokenizer files by name: tokenizer.json, or vocab.json and merges.txt. Optional:
/// tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja.
struct TokenizerFiles {
  std::string place;  // folder name for error messages
  std::map<std::string, std::string> contents;
};

/// Tokenizer. Immutable and thread-safe.
class Tokenizer {
 public:
  /// Loads a tokenizer from a folder or a tokenizer.json. Throws Error (data) with file, key and a
  /// hint.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& folder_or_file);
  static std::shared_ptr<const Tokenizer> parse(TokenizerFiles files);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Returns the ids of text of at most 2 GiB. Encodes each ill-formed UTF-8 sequence as U+FFFD.
  std::vector<int32_t> encode(
      std::string_view text,
      SpecialTokens specials = SpecialTokens::kRecognise,
      Template surroundings = Template::kApply) const;
  /// Returns the text of ids. Skips unknown ids, as Hugging Face tokenizers do. Invalid UTF-8
  /// becomes U+FFFD.
  std::string decode(
      std::span<const int32_t> ids, DecodedSpecials specials = DecodedSpecials::kKeep) const;

  /// Returns the highest id plus one, the required number of embedding rows.
  int64_t vocabulary_size() const;
  /// Return special ids from tokenizer_config.json or special_tokens_map.json. A GPT-2 tokenizer
  /// with only vocab.json and merges.txt uses <|endoftext|>.
  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> pad() const;
  std::optional<int32_t> mask() const;
  const RowTemplate& row_template() const;
  /// Return the id of a token as written in the file, and the token of an id.
  std::optional<int32_t> find(std::string_view token) const;
  std::optional<std::string> token(int32_t id) const;
  bool is_special(int32_t id) const;

  /// Returns a hash of everything that affects ids. Tokenizers with equal fingerprints encode
  /// identically.
  const std::string& fingerprint() const;
  /// Returns the source files by name. Adds a tokenizer.json if the source has none.
  std::map<std::string, std::string> files() const;
  /// Writes files().
  void save(const std::filesystem::path& folder) const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  const Parts& parts() const { return *parts_; }
  std::unique_ptr<Parts> parts_;
};

/// Incremental decoder. The concatenated output equals decode() of all ids. Each output consists of
/// complete UTF-8 characters and is returned as soon as later ids cannot change it. Not
/// thread-safe.
class StreamDecoder {
 public:
  explicit StreamDecoder(
      std::shared_ptr<const Tokenizer> tokenizer,
      DecodedSpecials specials = DecodedSpecials::kKeep);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  std::string push(int32_t id);
  /// Returns the remaining text. No more ids may be pushed.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::text
