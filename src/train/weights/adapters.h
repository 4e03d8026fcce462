// Adapters of a run: from the section `lora`, or a folder of PEFT's, to what a model is made with.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/core/config.h"
#include "model/adapters.h"
#include "model/head.h"
#include "model/source.h"
#include "parallel/parallelize.h"

namespace lockstep::train {

/// The file group of an adapter's tensors: adapter_model.safetensors.
inline constexpr std::string_view kAdapterGroup = "adapter_model";

struct AdapterRequest {
  model::LoraConfig config;
  std::filesystem::path folder;  // that the values are read from; empty: they are drawn
  /// Of a saved classifier: its head, which its model's folder does not know.
  std::optional<model::HeadSpec> head;

  /// Of several that are used as one: `folder` is then empty, and `config` the first's.
  struct Part {
    model::LoraConfig config;
    std::filesystem::path folder;
    double weight = 1;  // of what it adds
  };
  std::vector<Part> parts = {};
  enum class Combination {
    kCat,
    kLinear
  };  // stacked, or summed (train/weights/combined_adapters.h)
  Combination combination = Combination::kCat;
};

/// The file of a classifier's adapter that names its classes: {"0": NAME, "1": ...}. PEFT's folders
/// have none.
inline constexpr std::string_view kLabelsName = "id2label.json";
std::string labels_json(const model::HeadSpec& head);
/// What the model is with the adapter: a classifier where that is one.
model::ModelConfig config_with(
    const model::ModelConfig& model, const std::optional<AdapterRequest>& adapter);

/// What the section asks for; nothing where no key of it is given. Error (config, data).
std::optional<AdapterRequest> adapter_request(const config::LoraSection& section);
/// A saved adapter: its folder, or one of checkpoints (an output_dir), which stands for the latest
/// good one. Nothing where `folder` is empty. Error (config, data).
std::optional<AdapterRequest> saved_adapter(const std::filesystem::path& folder);

/// `given`, or where that is empty the folder of the adapter if it holds the tokenizer that it was
/// trained with, which may have a chat template that its model's has not.
std::string tokenizer_path(const std::string& given, const std::optional<AdapterRequest>& adapter);

/// What commands are given of adapters that are used as they are.
struct AdapterFlags {
  std::vector<std::string> folders;
  std::vector<double> weights;  // as many as folders, or none: each 1
  std::string combination;      // cat, linear; empty: cat
};
/// One as saved_adapter, where it has no weight; else `parts`. Error (config) where numbers of them
/// differ, or one of several trains more than factors.
std::optional<AdapterRequest> saved_adapters(const AdapterFlags& flags);

/// What the request trains of a model. Error (config, data) where it does not fit.
model::Adapters find_adapters(const AdapterRequest& request, const model::ModelConfig& model);

/// Puts the adapters into `spec`, whose config is final, and their values before its other ones.
/// Error (config, data) where they do not fit the model, or the folder's tensors are not theirs.
void request_adapters(
    parallel::ModelSpec& spec,
    const AdapterRequest& request,
    const model::ModelSource& base,
    uint64_t seed);

/// adapter_config.json, as text.
std::string adapter_config(const model::Adapters& adapters, const model::ModelConfig& model);

/// Where a tensor of the state is kept: the names in a file group. No names: it is not saved.
struct SavedNames {
  std::string file_group;
  std::vector<std::string> names;
};
/// Of the group "model" under adapters, what is trained alone, under PEFT's names; else as it is.
SavedNames saved_names(
    const model::Adapters* adapters, const std::string& file_group, const std::string& name);

}  // namespace lockstep::train
