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

/// Document, or part of a long plain text. The text is valid UTF-8.
struct Document {
  std::string prompt;  // encoded separately, without loss; empty: none
  std::string text;
  bool begins = true, ends = true;
  /// For a chat: the spans of `text` that have a loss. The template has rendered all of `text`, so
  /// that no tokens are added around it.
  std::optional<std::vector<jinja::TextSpan>> learned = {};
  // For records with labels (DataOptions::label_fields):
  std::string pair = {};               // second text of a pair
  std::optional<RawLabel> label = {};  // nullopt: empty, null or missing
  int64_t line = 0;                    // line of the file on which the record begins

  bool operator==(const Document&) const = default;
};

/// Open file: its records in order, and the parser that converts a record to documents. `parse`
/// appends to `documents` and may be called on several threads. Its errors contain file, line and
/// field.
struct DocumentSource {
  std::unique_ptr<RecordReader> records;
  std::function<void(Record record, std::vector<Document>& documents)> parse;
};

DocumentSource open_documents(
    const InputFile& input, const DataOptions& options, const TextCutting& cutting);

/// Returns the prompt of Stanford Alpaca (Taori et al., 2023). `input` may be empty.
std::string alpaca_prompt(std::string_view instruction, std::string_view input);

}  // namespace lockstep::data
