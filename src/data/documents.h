// What records say: documents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/inputs.h"
#include "data/options.h"
#include "data/raw_label.h"
#include "data/records.h"
#include "jinja/template.h"

namespace lockstep::data {

/// A document or, of long plain text, a part of one. Valid UTF-8.
struct Document {
  std::string prompt;  // encoded apart and without loss; empty: none
  std::string text;
  bool begins = true, ends = true;
  /// Of a chat, whose template gave all of `text`: what has a loss of it. No token is put around.
  std::optional<std::vector<jinja::TextSpan>> learned = {};
  // Of records with labels (DataOptions::label_fields):
  std::string pair = {};               // the second text
  std::optional<RawLabel> label = {};  // nothing: empty, null or not there
  int64_t line = 0;                    // of the file, where the record begins
};

/// A file that is open: its records one after another, and what makes documents of a record.
/// `parse` may be called from many threads; it appends to the documents, and its Errors name file,
/// line and field.
struct DocumentSource {
  std::unique_ptr<RecordReader> records;
  std::function<void(Record record, std::vector<Document>& documents)> parse;
};

DocumentSource open_documents(
    const InputFile& input, const DataOptions& options, const TextCutting& cutting);

/// The prompt that Stanford Alpaca (Taori et al., 2023) trains with; `input` may be empty.
std::string alpaca_prompt(std::string_view instruction, std::string_view input);

}  // namespace lockstep::data
