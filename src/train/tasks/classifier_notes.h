// What a classifier's folder says of how it was trained, beside its config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "config/core/origin.h"

namespace lockstep::train {

/// The file of a model folder; Hugging Face's libraries do not read it.
inline constexpr const char* kClassifierNotes = "classification.json";

struct ClassifierNotes {
  int64_t sequence_length = 0;     // tokens of a row; 0: not known
  std::vector<double> thresholds;  // as answer_of(); empty: 0.5, or the likeliest
  std::string text_field, text_pair_field, label_delimiter;
  std::vector<std::string> label_field;
  std::vector<std::string> labels = {};
  double temperature = 1;                                    // that logits are divided by
  std::optional<config::GenerativeSection> generative = {};  // of labels that are written
  std::string text_delimiter = {};                           // empty: the usual one
  std::string positive_label = {};                           // of two; empty: the second
};

ClassifierNotes notes_of(
    const config::DataSection& data, int64_t sequence_length, std::vector<double> thresholds);
std::string to_json(const ClassifierNotes& notes, const std::vector<std::string>& labels);
/// Of a model folder; empty notes where it has none. Error (kData): the file is no such one.
ClassifierNotes read_notes(const std::filesystem::path& folder);
/// Puts what the notes know where nothing was given, whatever the values.
void apply_notes(
    const ClassifierNotes& notes, const config::Origins& given, config::DataSection& data);

}  // namespace lockstep::train
