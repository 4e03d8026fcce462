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
  /// Called concurrently from several threads.
  std::function<std::vector<int32_t>(std::string_view)> encode;
  std::string fingerprint;      // changes whenever an id could change
  int64_t vocabulary_size = 0;  // larger than every id
  std::optional<int32_t>
      begin;                   // prepended to each document if the tokenizer does so (Llama's BOS)
  std::optional<int32_t> end;  // appended to each document (EOS)
  bool ends_prompts = false;   // `end` also follows each prompt, which an encoder reads separately
  /// Template around a row's texts for encoders; without it `begin` is used.
  std::optional<text::RowTemplate> rows = {};
  std::optional<int32_t>
      pad;  // pads short rows, without loss; `end` or 0 if the tokenizer has none
  /// True for byte-level BPE: encode(a) + encode(b) = encode(a + b) if b begins with one space and
  /// a non-space character. Long plain text is then encoded in pieces, in parallel and in bounded
  /// memory; otherwise each document is encoded whole.
  bool pieces = true;
};

/// Creates the interface of a tokenizer. Special tokens in the text are recognized, as in Hugging
/// Face tokenizers. `begin` is the token that the tokenizer's template puts before a text; `end` is
/// its EOS (none if append_eos is false). `pieces` is determined by trial encodings.
Encoder make_encoder(std::shared_ptr<const text::Tokenizer> tokenizer, bool append_eos = true);
/// The same for an encoder model: documents and rows are enclosed by the tokenizer's template
/// ([CLS] and [SEP]) instead of its EOS.
Encoder make_row_encoder(std::shared_ptr<const text::Tokenizer> tokenizer);

/// The same for an encoder-decoder classifier: every text ends with `end`, at which the class is
/// read. Throws Error (data) if the template puts another token there.
Encoder make_source_encoder(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t end);

}  // namespace lockstep::data
