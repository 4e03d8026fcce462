// Tokenizers: from text to ids and back, equal to Hugging Face's tokenizers, id for id.
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

/// What encoding makes of special tokens ("<|endoftext|>") that stand in the text.
enum class SpecialTokens {
  kRecognise,  // each is its own id, as in Hugging Face's tokenizers
  kAsText,     // they are text like any other: for text that is not trusted
};
/// What encoding puts around a text: the post-processor's template, such as <s> before it.
enum class Template { kApply, kOmit };
/// What decoding makes of special tokens.
enum class DecodedSpecials { kKeep, kSkip };

/// The files of a tokenizer, by their names: tokenizer.json, or vocab.json and merges.txt, and
/// where they are there tokenizer_config.json, special_tokens_map.json, added_tokens.json,
/// chat_template.jinja.
struct TokenizerFiles {
  std::string place;  // the folder, for errors
  std::map<std::string, std::string> contents;
};

/// Immutable and thread-safe: any number of threads may encode and decode at once.
class Tokenizer {
 public:
  /// From a folder, or a tokenizer.json in it. An Error (kData) names the file, the key, and what
  /// to do.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& folder_or_file);
  static std::shared_ptr<const Tokenizer> parse(TokenizerFiles files);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The ids of a text; each ill-formed part of its UTF-8 counts as U+FFFD. At most 2 GiB of text.
  std::vector<int32_t> encode(
      std::string_view text,
      SpecialTokens specials = SpecialTokens::kRecognise,
      Template surroundings = Template::kApply) const;
  /// The text of ids. Ids that are no token's are left out, as Hugging Face does. Bytes that are
  /// not UTF-8 become U+FFFD.
  std::string decode(
      std::span<const int32_t> ids, DecodedSpecials specials = DecodedSpecials::kKeep) const;

  /// The highest id and one: the rows that an embedding needs.
  int64_t vocabulary_size() const;
  /// The special ids of tokenizer_config.json or special_tokens_map.json; for GPT-2's two files
  /// alone, <|endoftext|>.
  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> pad() const;
  std::optional<int32_t> mask() const;
  const RowTemplate& row_template() const;
  /// The id of a token, as the file writes it, and the token of an id.
  std::optional<int32_t> find(std::string_view token) const;
  std::optional<std::string> token(int32_t id) const;
  bool is_special(int32_t id) const;

  /// A hash of all that ids depend on: two tokenizers of one fingerprint encode alike.
  const std::string& fingerprint() const;
  /// The files that it was made from, by name, and a tokenizer.json where that was not one of them.
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

/// Decodes ids one by one. The texts that it gives, one after the other, are decode() of all the
/// ids; each is whole UTF-8 characters, given as soon as no later id can change them. Not
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
  /// What is left, after which nothing may be pushed.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::text
