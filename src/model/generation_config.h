// Generation settings of a model folder: generation_config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

inline constexpr const char* kGenerationConfigName = "generation_config.json";

struct GenerationConfig {
  std::string text;                    // content of the file; empty: there is none
  std::vector<int64_t> eos_token_ids;  // empty: those of config.json
  bool samples = false;                // do_sample; otherwise decoding is greedy
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k, max_new_tokens, min_new_tokens;
  std::vector<std::string> unsupported;  // keys that may change the text in transformers
};

/// Reads the file of a folder. Throws Error (data) if it is invalid.
GenerationConfig read_generation_config(const std::filesystem::path& folder);

/// Returns the tokens that end a text: eos_token_id of generation_config.json, otherwise of
/// config.json.
std::vector<int64_t> stop_tokens(const GenerationConfig& generation, const ModelConfig& config);

/// Adds a token to those that end a text, and to eos_token_id of the file. Does nothing if it is
/// one of them.
void add_stop_token(GenerationConfig& generation, const ModelConfig& config, int64_t token);

/// Returns the content to save: the file unchanged, otherwise the tokens of config.json.
std::string to_json(const GenerationConfig& generation, const ModelConfig& config);

}  // namespace lockstep::model
