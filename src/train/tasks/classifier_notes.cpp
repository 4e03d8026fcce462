// Reads and writes classification.json.
#include "train/tasks/classifier_notes.h"

#include <cmath>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"

namespace lockstep::train {

ClassifierNotes notes_of(
    const config::DataSection& data, int64_t sequence_length, std::vector<double> thresholds) {
  ClassifierNotes notes{
      sequence_length,
      std::move(thresholds),
      data.text_field,
      data.text_pair_field,
      data.label_delimiter,
      data.label_field};
  notes.text_delimiter = data.text_delimiter;
  return notes;
}

std::string to_json(const ClassifierNotes& notes, const std::vector<std::string>& labels) {
  nlohmann::ordered_json json{
      {"labels", labels},
      {"sequence_length", notes.sequence_length},
      {"text_field", notes.text_field},
      {"text_pair_field", notes.text_pair_field},
      {"label_field", notes.label_field},
      {"label_delimiter", notes.label_delimiter},
      {"text_delimiter", notes.text_delimiter}};
  if (notes.temperature != 1) {
    json["temperature"] = notes.temperature;
  }
  if (notes.generative) {
    json["generative"] = {
        {"prompt_template", notes.generative->prompt_template},
        {"verbalizers", notes.generative->verbalizers},
        {"normalize", notes.generative->normalize},
        {"decode", notes.generative->decode.value_or("likelihood")},
        {"chat", notes.generative->chat},
        {"prompt_loss", notes.generative->prompt_loss}};
  }
  if (!notes.thresholds.empty()) {
    json["thresholds"] = notes.thresholds;
  }
  if (!notes.positive_label.empty()) {
    json["positive_label"] = notes.positive_label;
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

ClassifierNotes read_notes(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kClassifierNotes;
  if (folder.empty() || !std::filesystem::exists(path)) {
    return {};
  }
  const nlohmann::json json = read_json(path);
  try {
    ClassifierNotes notes;
    notes.sequence_length = json.at("sequence_length");
    notes.thresholds = json.value("thresholds", std::vector<double>());
    notes.temperature = json.value("temperature", 1.0);
    if (!(notes.temperature > 0) || !std::isfinite(notes.temperature)) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: the temperature {} is not above 0", path.string(), notes.temperature),
          "remove \"temperature\" or the file");
    }
    notes.text_field = json.at("text_field");
    notes.text_pair_field = json.at("text_pair_field");
    notes.label_delimiter = json.at("label_delimiter");
    notes.text_delimiter = json.value("text_delimiter", "");
    notes.positive_label = json.value("positive_label", "");
    notes.label_field = json.at("label_field").get<std::vector<std::string>>();
    notes.labels = json.at("labels").get<std::vector<std::string>>();
    if (const auto written = json.find("generative"); written != json.end()) {
      notes.generative = {
          written->at("prompt_template"),
          written->at("verbalizers").get<std::vector<std::string>>(),
          written->at("normalize"),
          written->value("decode", "likelihood"),
          written->value("chat", false),
          written->value("prompt_loss", false)};
    }
    const size_t labels = notes.labels.size();
    const size_t thresholds = notes.thresholds.size();
    if (thresholds != 0 && thresholds != labels && !(thresholds == 1 && labels == 2)) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{} has {} thresholds for {} labels", path.string(), thresholds, labels),
          "remove \"thresholds\" or the file");
    }
    return notes;
  } catch (const nlohmann::json::exception& error) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: {}", path.string(), error.what()),
        "remove the file; the model works without it");
  }
}

void apply_notes(
    const ClassifierNotes& notes, const config::Origins& given, config::DataSection& data) {
  const auto fill = [&](const char* name, auto& key, const auto& value) {
    if (!given.contains(name) && value != std::decay_t<decltype(value)>{}) {
      key = value;
    }
  };
  fill("data.text_field", data.text_field, notes.text_field);
  fill("data.text_pair_field", data.text_pair_field, notes.text_pair_field);
  fill("data.label_delimiter", data.label_delimiter, notes.label_delimiter);
  fill("data.text_delimiter", data.text_delimiter, notes.text_delimiter);
  fill("data.label_field", data.label_field, notes.label_field);
  fill("data.sequence_length", data.sequence_length, notes.sequence_length);
}

}  // namespace lockstep::train
