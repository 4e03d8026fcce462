// From what a LoRA configuration asks for to what of one model is trained: the layers with
// adapters, their parameters, and the names under which PEFT's files hold them.
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

/// What stands beside a layer: low-rank factors of a linear, of the token embedding or of the head;
/// or rows of some tokens, which are trained instead of the table's.
struct Adapter {
  int64_t rank = 0;                  // 0: rows
  double scale = 1;                  // of what they add: alpha / r, or alpha / sqrt(r)
  double dropout = 0;                // of A's input
  bool decomposes = false;           // into sizes and directions (DoRA)
  bool of_tied_head = false;         // an embedding's: a head that is tied to it has it too
  std::vector<int64_t> tokens = {};  // of rows
  /// lora_A.weight [r, in] and lora_B.weight [out, r] (of an embedding lora_embedding_A and _B), as
  /// files hold them; with DoRA then lora_magnitude_vector [out]. Of rows [tokens, C].
  std::vector<ParameterSpec> parameters;
};

struct Adapters {
  std::map<std::string, Adapter> of_layers;  // by the prefix of the layer's parameters
  /// Of the model's own parameters those that are trained too: modules_to_save, biases.
  std::set<std::string> trained;
  /// All that is trained, and so saved: its names in PEFT's file by the model's name. One, or where
  /// a weight is tied two.
  std::map<std::string, std::vector<std::string>> file_names;
  /// What PEFT may save besides. Weights of the base that are then the file's, by the model's name;
  /// and copies, which are not read.
  std::map<std::string, std::string> base_names;
  std::set<std::string> copies;
  /// As it is saved: without what stands for something else (null, all-linear).
  LoraConfig config;
  std::string base_hash;  // of the weights beside it (train/weights/adapter_base.h); empty: unknown
};

/// Where a configuration comes from.
enum class AdapterOrigin {
  kNew,   // a user asks for it now: what matches nothing, or is not clear, is refused
  kSaved  // a folder has it, with the tensors
};

/// Throws Error (kConfig) that says what of the configuration does not fit the model, with the
/// nearest names. `ranks`: of a saved adapter, by the layer's prefix, what its tensors say.
Adapters resolve_adapters(
    LoraConfig config,
    const ModelConfig& model,
    AdapterOrigin origin,
    const std::map<std::string, int64_t>& ranks = {});

/// The name in PEFT's files of a tensor, or of a module, of the model.
std::string peft_name(const std::string& name);
/// The layer of a lora_magnitude_vector, which begins as the norms of its rows; nothing for the
/// name of another parameter.
std::optional<std::string> layer_of_magnitudes(const std::string& parameter);
/// The layer of trained rows, which begin as the table's.
std::optional<std::string> layer_of_rows(const std::string& parameter);
/// The number of parameters that are trained.
int64_t trained_count(const Adapters& adapters, const ModelConfig& model);
/// The parameters of the adapters, by name.
std::map<std::string, ParameterSpec> adapter_parameters(const Adapters& adapters);

}  // namespace lockstep::model
