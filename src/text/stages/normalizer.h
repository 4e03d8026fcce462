// Normalizers, which transform text before it is split.
#pragma once

#include <memory>
#include <string>

#include "text/models/fields.h"

namespace lockstep::text {

/// Span of text during normalization. Valid UTF-8.
struct NormalizedText {
  std::string text;
  /// True if its first character is the start of the user's text. Used by Metaspace with
  /// prepend_scheme "first".
  bool at_start = true;
  /// Maximum size in bytes; 0 until the first stage that lengthens the text sets it.
  size_t most = 0;

  /// Limits the growth of the text. Stages that insert strings from the file call it with the
  /// current size. Throws Error (data) if a short text would exhaust memory.
  void check_growth(size_t size);
};

class Normalizer {
 public:
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;
  virtual ~Normalizer() = default;
  virtual void normalize(NormalizedText& text) const = 0;
};

/// Reads the normalizer of a tokenizer.json. Throws Error if a type is unknown.
std::unique_ptr<Normalizer> make_normalizer(const Field& field);

}  // namespace lockstep::text
