// The fields of model, tokenizer, task and data.
#pragma once

#include <string_view>
#include <type_traits>

#include "config/core/config.h"
#include "config/core/fields/field.h"

namespace lockstep::config {

namespace choices {

inline constexpr std::string_view kDataFormats[] = {"auto", "text", "jsonl", "csv", "tsv"};
inline constexpr std::string_view kTextDocuments[] = {"file", "line", "paragraph"};
inline constexpr std::string_view kLongDocuments[] = {"split", "truncate"};
inline constexpr std::string_view kInvalidUtf8[] = {"error", "replace"};
inline constexpr std::string_view kTasks[] = {
    "language_modeling", "sequence_classification", "preference", "reward_model"};
inline constexpr std::string_view kProblems[] = {
    "single_label_classification", "multi_label_classification", "regression"};
inline constexpr std::string_view kThresholds[] = {"fixed", "tuned"};
inline constexpr std::string_view kPrompts[] = {"none", "alpaca", "pairs"};

}  // namespace choices

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, ModelSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"path",
       "A Hugging Face folder, a config.json, or a Hub name that is in the local Hugging Face "
       "cache"},
      section.path);
  visitor({"preset", "The name of a built-in model description (random weights)"}, section.preset);
  visitor(
      {"resize_embeddings", "Grow the embedding where the tokenizer has more entries than it"},
      section.resize_embeddings);
  visitor(
      {"freeze",
       "Parameters that are not trained: regular expressions that are looked for in their names. "
       "They get no gradient and no optimizer state"},
      section.freeze);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, TokenizerSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"path",
       "A folder with tokenizer.json or vocab.json and merges.txt, or such a file; empty: the "
       "model's folder"},
      section.path);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, TaskSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"type",
       "language_modeling predicts the next token, sequence_classification a label of each row, "
       "preference tunes a language model to answers that people prefer, reward_model trains a "
       "head that tells how good an answer is; null: what the model's folder is for, "
       "language_modeling where it does not say",
       choices::kTasks},
      section.type);
  visitor(
      {"problem_type",
       "For sequence_classification: single_label_classification, multi_label_classification "
       "(several labels a row) or regression (numbers); null: the model's, or what the rows' "
       "labels "
       "look like",
       choices::kProblems},
      section.problem_type);
  visitor(
      {"labels",
       "For sequence_classification: the labels, in the order of their numbers; empty: the model's "
       "own, or those that occur in the training rows, sorted"},
      section.labels);
  visitor(
      {"class_weights",
       "For sequence_classification: balanced, by how rare a label is among the training rows, or "
       "a number for each label, in their order; empty: all weigh the same"},
      section.class_weights);
  visitor(
      {"focal_gamma",
       "For sequence_classification: rows that are told surely weigh less by (1 - p) to this "
       "power"},
      section.focal_gamma);
  visitor(
      {"thresholds",
       "For two labels, or several a row: fixed takes a label for told above 0.5; tuned looks for "
       "the threshold of the largest F1 on data.validation, and saves it with the model",
       choices::kThresholds},
      section.thresholds);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, DataSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"train",
       "Files to train on: paths or globs; text, JSON lines, CSV or TSV, also gzip and zstd of "
       "each"},
      section.train);
  visitor(
      {"validation", "Files to evaluate on; empty: see validation_fraction"}, section.validation);
  visitor({"test", "Files for the closing test (do_predict)"}, section.test);
  visitor(
      {"validation_fraction",
       "Share of the training documents held out for evaluation where data.validation is empty, 0 "
       "to 1"},
      section.validation_fraction);
  visitor(
      {"test_fraction",
       "Share of the training documents held out for the closing test where data.test is empty, 0 "
       "to 1"},
      section.test_fraction);
  visitor({"split_seed", "Which documents are held out"}, section.split_seed);
  visitor(
      {"sequence_length", "Tokens in a training sequence; 0: what the model allows, at most 1024"},
      section.sequence_length);
  visitor(
      {"format", "How the files are read; auto goes by their names", choices::kDataFormats},
      section.format);
  visitor({"text_field", "The field or column that holds the text"}, section.text_field);
  visitor(
      {"text_pair_field",
       "For sequence_classification: the field of a second text beside the first (two sentences "
       "that are compared); empty: none"},
      section.text_pair_field);
  visitor(
      {"label_field",
       "For sequence_classification: the field of a row's label, or of a list of its labels; "
       "several fields: one for each label, 0 or 1, or for each number"},
      section.label_field);
  visitor(
      {"label_delimiter",
       "For sequence_classification: what stands between the labels of a row (\",\", \"|\"); "
       "empty: "
       "the field is one label, or a list as JSON and Python write it"},
      section.label_delimiter);
  visitor(
      {"prompt",
       "none: the text field is the document; alpaca: instruction, input and output, the prompt's "
       "loss masked; pairs: instruction and output alone",
       choices::kPrompts},
      section.prompt);
  visitor(
      {"instruction_field", "The field of the instruction, for prompt=alpaca and pairs"},
      section.instruction_field);
  visitor(
      {"input_field", "The field of the optional input, for prompt=alpaca"}, section.input_field);
  visitor(
      {"output_field", "The field of the answer, for prompt=alpaca and pairs"},
      section.output_field);
  visitor(
      {"packing",
       "Join documents and cut them into full sequences; false: one document a sequence, cut or "
       "padded"},
      section.packing);
  visitor(
      {"append_eos", "Put the end-of-text token after each document, where the tokenizer has one"},
      section.append_eos);
  visitor(
      {"text_documents",
       "What a document of plain text is: the whole file, a line, or a paragraph between blank "
       "lines",
       choices::kTextDocuments},
      section.text_documents);
  visitor(
      {"long_documents",
       "For packing=false, a document longer than a sequence: split over several, or truncate",
       choices::kLongDocuments},
      section.long_documents);
  visitor(
      {"invalid_utf8",
       "Bytes that are not UTF-8: error, or replace by U+FFFD",
       choices::kInvalidUtf8},
      section.invalid_utf8);
  visitor(
      {"cache_dir",
       "Folder of the tokenized data; empty: ~/.cache/lockstep/data (or below XDG_CACHE_HOME)"},
      section.cache_dir);
}

}  // namespace lockstep::config
