// Interface between data preparation and tokenizers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::data {

struct Encoder {
  /// May be called on several threads at the same time.
  std::function<std::vector<int32_t>(std::string_view)> encode;
  std::string fingerprint;      // changes whenever an id could change
  int64_t vocabulary_size = 0;  // larger than any id
  std::optional<int32_t>
      begin;                   // prepended to each document if the tokenizer does so (Llama's BOS)
  std::optional<int32_t> end;  // appended to each document (EOS)
  bool ends_prompts = false;   // `end` also follows prompts that an encoder reads separately
  /// For encoders: template for the texts of a row. Otherwise `begin` is used.
  std::optional<text::RowTemplate> rows = {};
  std::optional<int32_t>
      pad;  // pads short rows, without loss; `end` or 0 if the tokenizer has none
  /// True for byte-level BPE, for which encode(a) + encode(b) = encode(a + b) if b begins with one
  /// space and a non-space character. Long plain text is then encoded in pieces, in parallel and in
  /// bounded memory. Otherwise each document is encoded as a whole.
  bool pieces = true;
};

/// Creates the interface of a tokenizer. Like Hugging Face tokenizers, it recognizes special tokens
/// in the text. `begin` is the token that the tokenizer's template puts before a text. `end` is the
/// tokenizer's EOS, or empty if append_eos is false. `pieces` is determined by trial encodings.
Encoder make_encoder(std::shared_ptr<const text::Tokenizer> tokenizer, bool append_eos = true);
/// Variant for encoder models. Documents and rows are enclosed by the tokenizer's template ([CLS]
/// and [SEP]) instead of ending with EOS.
Encoder make_row_encoder(std::shared_ptr<const text::Tokenizer> tokenizer);

/// Variant for encoder-decoder classifiers. Every text ends with `end`, the position at which the
/// class is predicted. Throws Error (data) if the template ends with another token.
Encoder make_source_encoder(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t end);

}  // namespace lockstep::data
