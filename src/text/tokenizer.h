// Tokenizers: convert text to ids and back, with the same ids as Hugging Face tokenizers.
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

/// Treatment of special tokens ("<|endoftext|>") that occur in the text.
enum class SpecialTokens {
  kRecognise,  // map each to its id, as Hugging Face tokenizers do
  kAsText,     // encode them as ordinary text; use this for untrusted input
};
/// Controls whether encoding applies the post-processor's template, such as <s> before the text.
enum class Template { kApply, kOmit };
/// Treatment of special tokens in decoded text.
enum class DecodedSpecials { kKeep, kSkip };

/// Files of a tokenizer by name: tokenizer.json, or vocab.json and merges.txt. Optional:
/// tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja.
struct TokenizerFiles {
  std::string place;  // the folder, used in errors
  std::map<std::string, std::string> contents;
};

/// Immutable and thread-safe; any number of threads may encode and decode concurrently.
class Tokenizer {
 public:
  /// Loads a tokenizer from a folder or a tokenizer.json. Throws Error (data) that names the file
  /// and key, with a hint.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& folder_or_file);
  static std::shared_ptr<const Tokenizer> parse(TokenizerFiles files);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Returns the ids of a text of at most 2 GiB. Each ill-formed UTF-8 sequence is encoded as
  /// U+FFFD.
  std::vector<int32_t> encode(
      std::string_view text,
      SpecialTokens specials = SpecialTokens::kRecognise,
      Template surroundings = Template::kApply) const;
  /// Returns the text of ids. Unknown ids are skipped, as in Hugging Face tokenizers. Bytes that
  /// are not valid UTF-8 become U+FFFD.
  std::string decode(
      std::span<const int32_t> ids, DecodedSpecials specials = DecodedSpecials::kKeep) const;

  /// Highest id plus one, the number of embedding rows needed.
  int64_t vocabulary_size() const;
  /// Special ids from tokenizer_config.json or special_tokens_map.json. <|endoftext|> for a GPT-2
  /// tokenizer of vocab.json and merges.txt only.
  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> pad() const;
  std::optional<int32_t> mask() const;
  const RowTemplate& row_template() const;
  /// Return the id of a token, as spelled in the file, and the token of an id.
  std::optional<int32_t> find(std::string_view token) const;
  std::optional<std::string> token(int32_t id) const;
  bool is_special(int32_t id) const;

  /// Hash of everything that determines the ids. Tokenizers with equal fingerprints encode
  /// identically.
  const std::string& fingerprint() const;
  /// Returns the source files by name; adds a tokenizer.json if the source has none.
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

/// Decodes ids incrementally. The concatenated output equals decode() of all ids. Each output
/// consists of complete UTF-8 characters and is returned as soon as no later id can change it. Not
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
