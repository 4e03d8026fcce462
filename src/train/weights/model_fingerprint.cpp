// Hashes the files and the configuration keys that determine a model's outputs.
#include "train/weights/model_fingerprint.h"

#include <algorithm>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "config/print.h"
#include "train/weights/adapters.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

void hash_folder(const fs::path& folder, Hasher& hasher) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".safetensors" || path.filename() == "config.json" ||
        path.filename() == "adapter_config.json") {
      files.push_back(path);
    }
  }
  std::ranges::sort(files);
  for (const fs::path& path : files) {
    hasher.update_field(path.filename().string());
    hasher.update(MappedFile(path).bytes());
  }
}

/// Returns the keys that affect the model's outputs, with all other keys at their defaults. Keys
/// that name files are empty because the files are hashed.
config::Config relevant_keys(const config::Config& config, WithAdapter adapter) {
  config::Config relevant;
  relevant.quantization = config.quantization;
  relevant.precision = config.precision;
  relevant.model.resize_embeddings = config.model.resize_embeddings;
  relevant.training.bf16 = config.training.bf16;
  relevant.training.fp16 = config.training.fp16;
  relevant.training.bf16_full_eval = config.training.bf16_full_eval;
  relevant.training.tf32 = config.training.tf32;
  if (adapter == WithAdapter::kYes) {
    relevant.lora = config.lora;
    relevant.lora.adapter.clear();
    relevant.lora.config.clear();
  }
  return relevant;
}

}  // namespace

std::string model_fingerprint(
    const config::Config& config, const model::ModelSource& source, WithAdapter adapter) {
  Hasher hasher;
  hasher.update_field(config::to_yaml(relevant_keys(config, adapter)));
  if (source.folder.empty()) {
    hasher.update_field(source.name);
  } else {
    hash_folder(source.folder, hasher);
  }
  const bool draws_adapter = adapter == WithAdapter::kYes && config.lora.adapter.empty();
  if (!source.has_weights || draws_adapter || config.model.resize_embeddings) {
    hasher.update_field(
        fmt::format("{} layers, seed {}", source.config.layers, config.training.seed));
    hasher.update_field(source.name);
  }
  hasher.update_field(source.config.tie_word_embeddings ? "tied" : "untied");
  if (adapter == WithAdapter::kYes && !config.lora.config.empty()) {
    hasher.update_field(read_file(config.lora.config, ErrorKind::kData, kLongestJson));
  }
  if (const auto request =
          adapter == WithAdapter::kYes ? adapter_request(config.lora) : std::nullopt;
      request && !request->folder.empty()) {
    hash_folder(request->folder, hasher);
  }
  return hasher.hex();
}

std::string folder_fingerprint(const fs::path& folder) {
  Hasher hasher;
  hash_folder(folder, hasher);
  return hasher.hex();
}

}  // namespace lockstep::train
