// Normalizers: what is done to text before it is split.
#pragma once

#include <memory>
#include <string>

#include "text/models/fields.h"

namespace lockstep::text {

/// A stretch of text on its way through a tokenizer. Valid UTF-8.
struct NormalizedText {
  std::string text;
  /// Its first character came from the start of the user's text (Metaspace's prepend_scheme "first"
  /// asks).
  bool at_start = true;
  /// What it may grow to, in bytes; 0: the first stage that makes it longer says so.
  size_t most = 0;

  /// Whoever replaces parts of the text by what a file says calls this with the size so far. Error
  /// (data) where a small text would take all memory.
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

/// The normalizer of a tokenizer.json; an Error names a type that is not known.
std::unique_ptr<Normalizer> make_normalizer(const Field& field);

}  // namespace lockstep::text
