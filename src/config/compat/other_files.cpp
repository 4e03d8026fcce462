// Names files that are given as configuration but are something else.
#include <array>
#include <fstream>

#include "base/format.h"
#include "config/compat/foreign.h"

namespace lockstep::config {
namespace {

/// File with two keys (the second may be empty), and how it is used.
struct OtherFile {
  std::string_view key, second, kind, hint;
};
constexpr OtherFile kOtherFiles[] = {
    {"zero_optimization", "", "a DeepSpeed configuration", "pass it with --deepspeed FILE"},
    {"train_micro_batch_size_per_gpu",
     "",
     "a DeepSpeed configuration",
     "pass it with --deepspeed FILE"},
    {"peft_type",
     "",
     "PEFT's adapter_config.json",
     "set lora.config=FILE, or lora.adapter=FOLDER to continue its adapter"},
    {"tokenizer_class", "", "a tokenizer's tokenizer_config.json", "set tokenizer.path=FOLDER"},
    {"added_tokens_decoder",
     "",
     "a tokenizer's tokenizer_config.json",
     "set tokenizer.path=FOLDER"},
    {"added_tokens", "model", "a tokenizer's tokenizer.json", "set tokenizer.path=FOLDER"},
    {"log_history",
     "global_step",
     "a Trainer's trainer_state.json",
     "set training.resume_from_checkpoint=FOLDER to resume from a checkpoint"},
    {"model_type", "hidden_size", "a model's config.json", "set model.path=FOLDER"},
    {"model_type", "d_model", "a model's config.json", "set model.path=FOLDER"},
    {"model_type", "n_embd", "a model's config.json", "set model.path=FOLDER"},
    {"architectures", "", "a model's config.json", "set model.path=FOLDER"},
    {"weight_map", "", "an index of safetensors files", "set model.path=FOLDER"},
    {"eos_token_id",
     "transformers_version",
     "a model's generation_config.json",
     "set model.path=FOLDER"},
    {"chosen", "rejected", "a row of training data", "set data.train=FILE"},
    {"messages", "", "a row of training data", "set data.train=FILE"},
};

}  // namespace

std::optional<std::pair<std::string, std::string>> other_kind(const std::filesystem::path& path) {
  static constexpr std::array kData{
      ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".gz", ".zst"};
  const std::string end = path.extension().string();
  for (const char* each : kData) {
    if (end == each) {
      return std::pair("a data file, not a configuration", "set data.train=FILE, or --data FILE");
    }
  }
  if (end == ".toml") {
    return std::pair(
        "a TOML file (torchtitan's format), which is not read",
        "write the settings as YAML: docs/foreign-configs.md lists torchtitan's keys");
  }
  if (end == ".safetensors" || end == ".gguf" || end == ".bin" || end == ".pt") {
    return std::pair("a file with weights, not a configuration", "set model.path=FOLDER");
  }
  if (end == ".json") {
    char first = ' ';
    std::ifstream(path) >> first;
    if (first == '[') {
      return std::pair(
          "a JSON list, which is data and not a configuration",
          "set data.train=FILE, or --data FILE");
    }
  }
  return std::nullopt;
}

std::optional<std::pair<std::string, std::string>> other_kind(const Value& file) {
  for (const OtherFile& other : kOtherFiles) {
    if (!has_own_section(file) && file.find(other.key) != nullptr &&
        (other.second.empty() || file.find(other.second) != nullptr)) {
      return std::pair(std::string(other.kind), std::string(other.hint));
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::config
