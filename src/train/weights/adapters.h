// Adapters of a run, from the `lora` section or a PEFT folder.
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

/// File group of an adapter's tensors, saved as adapter_model.safetensors.
inline constexpr std::string_view kAdapterGroup = "adapter_model";

struct AdapterRequest {
  model::LoraConfig config;
  std::filesystem::path folder;  // values are read from it; empty: initialize randomly
  /// Head of a saved classifier. The base model's folder does not contain it.
  std::optional<model::HeadSpec> head;

  /// One of several adapters to combine. If there are several, `folder` is empty and `config` is
  /// that of the first part.
  struct Part {
    model::LoraConfig config;
    std::filesystem::path folder;
    double weight = 1;  // factor of its contribution
  };
  std::vector<Part> parts = {};
  enum class Combination { kCat, kLinear };  // see train/weights/combined_adapters.h
  Combination combination = Combination::kCat;
};

/// Returns the generation settings of the adapter's folder, otherwise of the base.
model::GenerationConfig generation_with(
    const model::ModelSource& base, const std::optional<AdapterRequest>& adapter);

/// File of a classifier's adapter with the names of its classes: {"0": NAME, "1": ...}. PEFT does
/// not write it.
inline constexpr std::string_view kLabelsName = "id2label.json";
std::string labels_json(const model::HeadSpec& head);
/// Returns the config of the model with the adapter. If the adapter contains a classification head,
/// this is the config of a classifier.
model::ModelConfig config_with(
    const model::ModelConfig& model, const std::optional<AdapterRequest>& adapter);

/// Returns the adapter that the section configures, or an empty optional if no key is set. Throws
/// Error (config, data).
std::optional<AdapterRequest> adapter_request(const config::LoraSection& section);
/// Opens a saved adapter. `folder` is the adapter's folder, or an output_dir, of which the latest
/// valid checkpoint is used. Returns an empty optional if `folder` is empty. Throws Error (config,
/// data).
std::optional<AdapterRequest> saved_adapter(const std::filesystem::path& folder);

/// Returns `given` if it is not empty. Otherwise returns the adapter's folder if it contains a
/// tokenizer, because its chat template may be missing in the base model's tokenizer.
std::string tokenizer_path(const std::string& given, const std::optional<AdapterRequest>& adapter);

/// Command line options for adapters.
struct AdapterFlags {
  std::vector<std::string> folders;
  std::vector<double> weights;  // one per folder, or empty: all are 1
  std::string combination;      // cat or linear; empty: cat
};
/// Opens the adapters that the options name. A single adapter without a weight is opened like
/// saved_adapter(); otherwise `parts` is filled. Throws Error (config) if the numbers of folders
/// and weights differ, or if one of several adapters contains more than factors.
std::optional<AdapterRequest> saved_adapters(const AdapterFlags& flags);

/// Returns the parameters that the request trains. Throws Error (config, data) if they do not fit
/// the model.
model::Adapters find_adapters(const AdapterRequest& request, const model::ModelConfig& model);

/// Adds the adapters and their initial values to `spec`. The config in `spec` must be final. Throws
/// Error (config, data) if the adapters do not fit the model or if the folder's tensors do not
/// match.
void request_adapters(
    parallel::ModelSpec& spec,
    const AdapterRequest& request,
    const model::ModelSource& base,
    uint64_t seed);

/// Returns the content of adapter_config.json.
std::string adapter_config(const model::Adapters& adapters, const model::ModelConfig& model);

/// File group and names under which a tensor is saved. If `names` is empty, it is not saved.
struct SavedNames {
  std::string file_group;
  std::vector<std::string> names;
};
/// Returns the saved names of a tensor. With adapters, only trained tensors of the group "model"
/// are saved, under PEFT's names. All other tensors keep their group and name.
SavedNames saved_names(
    const model::Adapters* adapters, const std::string& file_group, const std::string& name);

}  // namespace lockstep::train
