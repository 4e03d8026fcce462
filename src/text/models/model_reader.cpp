// Reads the "model" section of a tokenizer.json: BPE, Unigram, WordLevel and WordPiece.
#include "text/models/model_reader.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "text/models/unigram.h"
#include "text/models/word_models.h"

namespace lockstep::text {
namespace {

/// Returns the vocabulary in `tables` if given, otherwise in "vocab".
Vocabulary read_vocabulary(const Field& model, std::optional<ModelTables>& tables) {
  if (tables) {
    return Vocabulary(std::move(tables->vocabulary), model.place() + ".vocab");
  }
  const Field field = model.at("vocab");
  TokenIds tokens;
  if (!field.is_object()) {
    throw field.error("should be an object that maps tokens to ids");
  }
  tokens.reserve(field.json().size());
  for (const auto& [token, id] : field.json().items()) {
    if (!id.is_number_integer()) {
      throw field.error(fmt::format("has an id for \"{}\" that is not a whole number", token));
    }
    tokens.emplace_back(token, id.get<int64_t>());
  }
  return Vocabulary(std::move(tokens), field.place());
}

/// Parses a merge, written as "a b" or ["a", "b"].
std::pair<std::string, std::string> read_merge(
    const nlohmann::json& merge, const Field& list, size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  throw list.error(
      fmt::format("has an invalid entry at {}: expected two tokens separated by one space", index));
}

MergePairs read_merges(const Field& model, std::optional<ModelTables>& tables) {
  if (tables) {
    return std::move(tables->merges);
  }
  const Field field = model.at("merges");
  if (!field.json().is_array()) {
    throw field.error("should be a list of merges");
  }
  MergePairs merges;
  merges.reserve(field.json().size());
  for (size_t i = 0; i < field.json().size(); ++i) {
    const nlohmann::json& merge = field.json()[i];
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) {
      continue;
    }
    merges.push_back(read_merge(merge, field, i));
  }
  return merges;
}

ReadModel read_bpe(const Field& field, ModelInput input, std::optional<ModelTables>& tables) {
  const std::optional<Field> dropout = field.find("dropout");
  if (dropout && dropout->number() != 0) {
    throw dropout->error("is not 0: BPE dropout is not supported", "set model.dropout to null");
  }
  BpeDescription description;
  description.vocabulary = read_vocabulary(field, tables);
  description.merges = read_merges(field, tables);
  description.unknown_token = field.optional_string("unk_token");
  description.continuing_prefix = field.string_or("continuing_subword_prefix", "");
  description.end_of_word_suffix = field.string_or("end_of_word_suffix", "");
  description.fuse_unknown = field.boolean_or("fuse_unk", false);
  description.byte_fallback = field.boolean_or("byte_fallback", false);
  description.ignore_merges = field.boolean_or("ignore_merges", false);
  const bool bytes = input == ModelInput::kBytesIfPossible && BpeModel::can_take_bytes(description);
  return {
      std::make_unique<BpeModel>(
          std::move(description),
          bytes ? BpeModel::Pieces::kBytes : BpeModel::Pieces::kText,
          field.place() + ".merges"),
      bytes};
}

std::unique_ptr<Model> read_word_piece(const Field& field, std::optional<ModelTables>& tables) {
  const int64_t longest = field.integer_or("max_input_chars_per_word", 100);
  if (longest < 0) {
    throw field.at("max_input_chars_per_word").error("should not be negative");
  }
  return std::make_unique<WordPieceModel>(
      read_vocabulary(field, tables),
      field.string_or("unk_token", "[UNK]"),
      field.string_or("continuing_subword_prefix", "##"),
      static_cast<size_t>(longest));
}

std::unique_ptr<Model> read_unigram(const Field& field) {
  const Field vocabulary = field.at("vocab");
  TokenIds tokens;
  UnigramDescription description;
  for (const Field& entry : vocabulary.list()) {
    const std::vector<Field> parts = entry.list();
    if (parts.size() != 2) {
      throw entry.error("should be a token and its score");
    }
    tokens.emplace_back(parts[0].string(), static_cast<int64_t>(tokens.size()));
    description.scores.push_back(parts[1].number());
  }
  if (const std::optional<Field> unknown = field.find("unk_id")) {
    const int64_t id = unknown->integer();
    if (id < 0 || id >= static_cast<int64_t>(tokens.size())) {
      throw unknown->error(fmt::format("is {}, but there are {} tokens", id, tokens.size()));
    }
    description.unknown_id = static_cast<int32_t>(id);
  }
  description.vocabulary = Vocabulary(std::move(tokens), vocabulary.place());
  description.byte_fallback = field.boolean_or("byte_fallback", false);
  return std::make_unique<UnigramModel>(std::move(description));
}

/// Infers the model type, which older files do not contain.
std::string guess_type(const Field& field, const std::optional<ModelTables>& tables) {
  if (tables || field.find("merges")) {
    return "BPE";
  }
  if (field.find("unk_id")) {
    return "Unigram";
  }
  return field.find("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

}  // namespace

ReadModel read_model(const Field& field, ModelInput input, std::optional<ModelTables> tables) {
  const std::optional<std::string> named = field.optional_string("type");
  const std::string type = named ? *named : guess_type(field, tables);
  if (type == "BPE") {
    return read_bpe(field, input, tables);
  }
  if (type == "WordPiece") {
    return {read_word_piece(field, tables), false};
  }
  if (type == "WordLevel") {
    return {
        std::make_unique<WordLevelModel>(
            read_vocabulary(field, tables), field.string_or("unk_token", "<unk>")),
        false};
  }
  if (type == "Unigram") {
    return {read_unigram(field), false};
  }
  throw field.error(
      fmt::format("has the unknown type \"{}\"", type),
      "known models: BPE, Unigram, WordLevel, WordPiece");
}

}  // namespace lockstep::text
