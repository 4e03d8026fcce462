// Pre-tokenizers, which split text into pieces that the model encodes independently.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/fields.h"
#include "text/stages/split_patterns.h"

namespace lockstep::text {

/// Non-empty piece of text. at_start is described in NormalizedText.
struct Piece {
  std::string_view text;
  bool at_start;
};

/// Pieces of text, and storage for strings created by pre-tokenizers.
struct Pieces {
  std::vector<Piece> pieces;
  std::deque<std::string> texts;

  /// Stores `text` for the lifetime of this object.
  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;
  virtual ~PreTokenizer() = default;

  /// Splits each piece and replaces it with its parts.
  virtual void split(Pieces& pieces) const = 0;
  /// Returns the pattern whose scanner is equivalent to this pre-tokenizer, if any. The tokenizer
  /// then calls the scanner directly.
  virtual std::optional<SplitPattern> pattern() const { return std::nullopt; }
};

/// Handling of ByteLevel's final byte mapping.
enum class ByteMapping {
  kWrite,  // replace each byte with its character in GPT-2's alphabet
  kLeave,  // keep the bytes, for a model that encodes bytes
};

/// Returns true if the last step of the pre-tokenizer is ByteLevel's mapping, which can then be
/// skipped.
bool ends_with_byte_mapping(const Field& field);
/// Reads the pre-tokenizer in a tokenizer.json. Throws Error for an unknown type. kLeave skips the
/// final mapping and requires ends_with_byte_mapping(field).
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Field& field, ByteMapping mapping);

}  // namespace lockstep::text
