// Pre-tokenizers: where text is split into the pieces that the model encodes one by one.
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

/// A piece of text; see NormalizedText for at_start. Never empty.
struct Piece {
  std::string_view text;
  bool at_start;
};

/// The pieces of a text, and the texts that pre-tokenizers wrote anew.
struct Pieces {
  std::vector<Piece> pieces;
  std::deque<std::string> texts;

  /// Keeps `text` as long as this object lives.
  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;
  virtual ~PreTokenizer() = default;

  /// Replaces each piece by those it is split into.
  virtual void split(Pieces& pieces) const = 0;
  /// The pattern whose scanner alone does what this does, if any: the tokenizer then takes the
  /// short way.
  virtual std::optional<SplitPattern> pattern() const { return std::nullopt; }
};

/// What a model that encodes bytes makes of ByteLevel's last step.
enum class ByteMapping {
  kWrite,  // each byte becomes its character of GPT-2's alphabet
  kLeave,  // bytes stay as they are, for a model that takes bytes
};

/// Whether the last thing that the pre-tokenizer does is ByteLevel's mapping, so that it can be
/// left out.
bool ends_with_byte_mapping(const Field& field);
/// The pre-tokenizer of a tokenizer.json; an Error names a type that is not known. kLeave leaves
/// out the mapping at the end, and asks that ends_with_byte_mapping(field).
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Field& field, ByteMapping mapping);

}  // namespace lockstep::text
