// Hashes the base weights of an adapter.
#include "train/weights/adapter_base.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSamples = 64, kSample = 4096;
constexpr const char* kWeights = "weights";

void hash_samples(const fs::path& path, Hasher& hasher) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  hasher.update_field(fmt::format("{} {}", path.filename().string(), bytes.size()));
  if (bytes.size() <= kSamples * kSample) {
    hasher.update(bytes);
    return;
  }
  for (size_t i = 0; i < kSamples; ++i) {
    hasher.update(bytes.subspan((bytes.size() - kSample) / (kSamples - 1) * i, kSample));
  }
}

}  // namespace

std::string base_hash(const model::ModelSource& base) {
  if (!base.has_weights || base.folder.empty() || base.config.quantization) {
    return "";
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(base.folder)) {
    if (entry.path().extension() == ".safetensors") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  Hasher hasher;
  for (const fs::path& file : files) {
    hash_samples(file, hasher);
  }
  return hasher.hex();
}

std::string base_json(const std::string& hash) {
  return nlohmann::json{{kWeights, hash}}.dump(2) + "\n";
}

void check_base(const fs::path& adapter, const model::ModelSource& base) {
  const fs::path file = adapter / kBaseName;
  if (!fs::exists(file)) {
    return;
  }
  const nlohmann::json said = read_json(file);
  const auto weights = said.is_object() ? said.find(kWeights) : said.end();
  const std::string hash = base_hash(base);
  if (weights == said.end() || !weights->is_string() || hash.empty() || *weights == hash) {
    return;
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "the adapter {} was trained with other weights than those of {}",
          adapter.string(),
          base.name),
      fmt::format(
          "use the model that its adapter_config.json names; if this model is intended, remove {}",
          file.string()));
}

}  // namespace lockstep::train
