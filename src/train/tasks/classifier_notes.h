// Settings that a classifier was trained with, saved in its folder next to config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "config/core/origin.h"

namespace lockstep::train {

/// File in the model folder. Hugging Face's libraries ignore it.
inline constexpr const char* kClassifierNotes = "classification.json";

struct ClassifierNotes {
  int64_t sequence_length = 0;     // tokens per row; 0: unknown
  std::vector<double> thresholds;  // see answer_of(); empty: 0.5, or the most likely label
  std::string text_field, text_pair_field, label_delimiter;
  std::vector<std::string> label_field;
  std::vector<std::string> labels = {};
  double temperature = 1;                                    // divisor of the logits
  std::optional<config::GenerativeSection> generative = {};  // for generative classification
  std::string text_delimiter = {};                           // empty: the default
  std::string positive_label = {};                           // for two labels; empty: the second
};

ClassifierNotes notes_of(
    const config::DataSection& data, int64_t sequence_length, std::vector<double> thresholds);
std::string to_json(const ClassifierNotes& notes, const std::vector<std::string>& labels);
/// Reads the notes of a model folder. Returns empty notes if it has none. Throws Error (kData) if
/// the file is invalid.
ClassifierNotes read_notes(const std::filesystem::path& folder);
/// Applies the notes to the keys of `data` that the user did not set.
void apply_notes(
    const ClassifierNotes& notes, const config::Origins& given, config::DataSection& data);

}  // namespace lockstep::train
