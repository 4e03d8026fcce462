// The seam between data and tokenizers: all that tokenizing a corpus needs to know of one.
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
  /// Called from several threads at once.
  std::function<std::vector<int32_t>(std::string_view)> encode;
  std::string fingerprint;      // changes whenever an id could
  int64_t vocabulary_size = 0;  // every id is below it
  std::optional<int32_t>
      begin;  // put before each document, where the tokenizer does so (Llama's BOS)
  std::optional<int32_t> end;  // put after each document (EOS)
  bool ends_prompts = false;   // `end` comes after each prompt too: an encoder reads it by itself
  /// What is put around a row's texts, where that is asked for (encoders); else `begin` is.
  std::optional<text::RowTemplate> rows = {};
  std::optional<int32_t> pad;  // fills short rows, masked; `end` or 0 where there is none
  /// True for byte-level BPE: encode(a) + encode(b) = encode(a + b) where b begins with one space
  /// and a character that is not white space. Long plain text is then encoded in pieces, in
  /// parallel and in bounded memory; else each document is encoded whole.
  bool pieces = true;
};

/// The seam of a tokenizer. Special tokens in the text are recognised, as Hugging Face does.
/// `begin` is what the tokenizer's own template puts before a text; `end` is its EOS (none with
/// append_eos false). `pieces` is found by trying.
Encoder make_encoder(std::shared_ptr<const text::Tokenizer> tokenizer, bool append_eos = true);
/// The same for a model that is an encoder: documents and rows are put between what the tokenizer's
/// template has around them ([CLS] and [SEP]), its EOS or not.
Encoder make_row_encoder(std::shared_ptr<const text::Tokenizer> tokenizer);

/// The same for an encoder-decoder that classifies: every text ends with `end`, which the model is
/// read at. Error (kData): the template puts something else there.
Encoder make_source_encoder(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t end);

}  // namespace lockstep::data
