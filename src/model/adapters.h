// Resolution of a LoRA configuration against a model: layers with adapters, adapter parameters, and
// their names in PEFT files.
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

/// Adapter of a layer: low-rank factors of a linear layer, token embedding or head, or separately
/// trained rows of selected tokens.
struct Adapter {
  int64_t rank = 0;                  // 0: trained rows
  double scale = 1;                  // scale of the adapter's output: alpha / r, or alpha / sqrt(r)
  double dropout = 0;                // dropout on A's input
  bool decomposes = false;           // DoRA: separate magnitudes and directions
  bool of_tied_head = false;         // embedding tied to the head, which also uses the adapter
  std::vector<int64_t> tokens = {};  // tokens whose rows are trained
  /// lora_A.weight [r, in] and lora_B.weight [out, r] (for an embedding lora_embedding_A and
  /// lora_embedding_B) in file layout; with DoRA also lora_magnitude_vector [out]. For trained
  /// rows: [tokens, C].
  std::vector<ParameterSpec> parameters;
};

struct Adapters {
  std::map<std::string, Adapter> of_layers;  // adapter of each layer, by parameter prefix
  /// Parameters of the model itself that are also trained: modules_to_save and biases.
  std::set<std::string> trained;
  /// Names in the PEFT file of all trained and saved parameters, by model parameter name. Tied
  /// weights have two names, all others one.
  std::map<std::string, std::vector<std::string>> file_names;
  /// Additional tensors in PEFT files: base weights to read, by model parameter name, and copies
  /// that are not read.
  std::map<std::string, std::string> base_names;
  std::set<std::string> copies;
  /// Configuration as saved, with defaults and shorthands (null, all-linear) resolved.
  LoraConfig config;
  std::string base_hash;  // hash of the base weights (train/weights/adapter_base.h); empty: unknown
};

/// Origin of a configuration.
enum class AdapterOrigin {
  kNew,   // new adapter requested by the user; unmatched and ambiguous names are errors
  kSaved  // read from a folder together with its tensors
};

/// Resolves a configuration. Throws Error (kConfig) with the closest names if it does not fit the
/// model. `ranks` contains, for a saved adapter, the ranks of its tensors by layer prefix.
Adapters resolve_adapters(
    LoraConfig config,
    const ModelConfig& model,
    AdapterOrigin origin,
    const std::map<std::string, int64_t>& ranks = {});

/// Returns the name of a tensor or module in PEFT files.
std::string peft_name(const std::string& name);
/// Returns the layer of a lora_magnitude_vector, which is initialized to the norms of the layer's
/// weight rows. Returns nullopt for other parameters.
std::optional<std::string> layer_of_magnitudes(const std::string& parameter);
/// Returns the layer of trained rows, which are initialized to the table's rows. Returns nullopt
/// for other parameters.
std::optional<std::string> layer_of_rows(const std::string& parameter);
/// Returns the number of trained parameters.
int64_t trained_count(const Adapters& adapters, const ModelConfig& model);
/// Returns the adapters' parameters by name.
std::map<std::string, ParameterSpec> adapter_parameters(const Adapters& adapters);

}  // namespace lockstep::model
