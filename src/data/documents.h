// Documents parsed from records.
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

/// Document, or part of a long plain text. Valid UTF-8.
struct Document {
  std::string prompt;  // encoded separately and without loss; empty: none
  std::string text;
  bool begins = true, ends = true;
  /// For a chat, whose template rendered all of `text`: the spans with a loss. No tokens are added
  /// around it.
  std::optional<std::vector<jinja::TextSpan>> learned = {};
  // For records with labels (DataOptions::label_fields):
  std::string pair = {};               // the second text of a pair
  std::optional<RawLabel> label = {};  // nullopt: empty, null or missing
  int64_t line = 0;                    // line of the file on which the record begins

  bool operator==(const Document&) const = default;
};

/// Open file: its records in order, and the parser that turns a record into documents. `parse` may
/// be called from several threads. It appends to the documents; its Errors name file, line and
/// field.
struct DocumentSource {
  std::unique_ptr<RecordReader> records;
  std::function<void(Record record, std::vector<Document>& documents)> parse;
};

DocumentSource open_documents(
    const InputFile& input, const DataOptions& options, const TextCutting& cutting);

/// The prompt of Stanford Alpaca (Taori et al., 2023); `input` may be empty.
std::string alpaca_prompt(std::string_view instruction, std::string_view input);

}  // namespace lockstep::data
