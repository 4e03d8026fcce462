// Resolves a LoRA configuration to the trained parameters of a model: the layers with adapters,
// their parameters, and their names in PEFT's files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/description.h"
#include "model/lora_config.h"

namespace lockstep::model {

/// Adapter of a layer: low-rank factors of a linear, the token embedding or the head; or rows of
/// some tokens, trained instead of the table's.
struct Adapter {
  int64_t rank = 0;           // 0: trained rows
  double scale = 1;           // factor of the adapter's output: alpha / r, or alpha / sqrt(r)
  double dropout = 0;         // on A's input
  bool decomposes = false;    // DoRA: separate magnitudes and directions
  bool of_tied_head = false;  // embedding that is tied to the head, which uses the adapter too
  std::vector<int64_t> tokens = {};  // tokens of trained rows
  /// lora_A.weight [r, in] and lora_B.weight [out, r] (for an embedding lora_embedding_A and _B),
  /// in file layout; with DoRA also lora_magnitude_vector [out]. For trained rows: [tokens, C].
  std::vector<ParameterSpec> parameters;
};

struct Adapters {
  std::map<std::string, Adapter> of_layers;  // by parameter prefix of the layer
  /// The model's own parameters that are also trained: modules_to_save and biases.
  std::set<std::string> trained;
  /// All trained and saved parameters: their names in PEFT's file by the model's name. Tied weights
  /// have two, others one.
  std::map<std::string, std::vector<std::string>> file_names;
  /// Additional tensors that PEFT may save: base weights to read from the file, by the model's
  /// name, and copies, which are not read.
  std::map<std::string, std::string> base_names;
  std::set<std::string> copies;
  /// The configuration as saved, with defaults and shorthands (null, all-linear) resolved.
  LoraConfig config;
  std::string base_hash;  // hash of the base weights (train/weights/adapter_base.h); empty: unknown
};

/// Origin of a configuration.
enum class AdapterOrigin {
  kNew,   // a new adapter requested by the user: names that match nothing or are ambiguous are
          // rejected
  kSaved  // read from a folder together with the tensors
};

/// Resolves the configuration. Throws Error (kConfig) if it does not fit the model, with the
/// closest names. `ranks`: for a saved adapter, the ranks of its tensors by layer prefix.
Adapters resolve_adapters(
    LoraConfig config,
    const ModelConfig& model,
    AdapterOrigin origin,
    const std::map<std::string, int64_t>& ranks = {});

/// Returns the name of a tensor or module in PEFT's files.
std::string peft_name(const std::string& name);
/// Returns the layer of a lora_magnitude_vector, which is initialized to the norms of the layer's
/// rows; nullopt for other parameters.
std::optional<std::string> layer_of_magnitudes(const std::string& parameter);
/// Returns the layer of trained rows, which are initialized to the table's rows; nullopt for other
/// parameters.
std::optional<std::string> layer_of_rows(const std::string& parameter);
/// Returns the number of trained parameters.
int64_t trained_count(const Adapters& adapters, const ModelConfig& model);
/// Returns the adapters' parameters by name.
std::map<std::string, ParameterSpec> adapter_parameters(const Adapters& adapters);

}  // namespace lockstep::model
