// Normalizers, which transform text before it is split.
#pragma once

#include <memory>
#include <string>

#include "text/models/fields.h"

namespace lockstep::text {

/// Span of text during normalization, in valid UTF-8.
struct NormalizedText {
  std::string text;
  /// True if the first character is the start of the user's text. Used by Metaspace with
  /// prepend_scheme "first".
  bool at_start = true;
  /// Maximum size in bytes. Set by the first stage that lengthens the text; 0 before that.
  size_t most = 0;

  /// Limits the growth of the text. Stages that insert strings from the file must call it with the
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

/// Reads the normalizer in a tokenizer.json. Throws Error for an unknown type.
std::unique_ptr<Normalizer> make_normalizer(const Field& field);

}  // namespace lockstep::text
