// Determines the names, types and layouts of a model's tensors in GGUF.
#include "train/gguf/tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "base/format.h"
#include "model/rope.h"
#include "train/gguf/families.h"

namespace lockstep::train::gguf {
namespace {

using model::LayerKind;
using model::LayerSpec;
using model::ModelConfig;
using model::ParameterSpec;
using ops::GgufType;

constexpr std::array<std::pair<std::string_view, FileType>, 4> kFileTypes{{
    {"f16", FileType::kF16},
    {"q8_0", FileType::kQ8_0},
    {"q4_0", FileType::kQ4_0},
    {"q4_k_m", FileType::kQ4_K_M},
}};

/// GGUF names by layer role.
const std::map<std::string_view, std::string_view>& names() {
  static const std::map<std::string_view, std::string_view> kNames{
      {"tokens", "token_embd"},
      {"positions", "position_embd"},
      {"final_norm", "output_norm"},
      {"head", "output"},
      {"attention_norm", "attn_norm"},
      {"query", "attn_q"},
      {"key", "attn_k"},
      {"value", "attn_v"},
      {"query_key_value", "attn_qkv"},
      {"query_norm", "attn_q_norm"},
      {"key_norm", "attn_k_norm"},
      {"attention_out", "attn_output"},
      {"attention_out_norm", "post_attention_norm"},
      {"mlp_norm", "ffn_norm"},
      {"mlp_gate", "ffn_gate"},
      {"mlp_up", "ffn_up"},
      {"mlp_gate_up", "ffn_up"},
      {"mlp_down", "ffn_down"},
      {"mlp_out_norm", "post_ffw_norm"},
      {"router", "ffn_gate_inp"},
      {"expert_gate", "ffn_gate_exps"},
      {"expert_up", "ffn_up_exps"},
      {"expert_down", "ffn_down_exps"},
      {"shared_gate", "ffn_gate_shexp"},
      {"shared_up", "ffn_up_shexp"},
      {"shared_down", "ffn_down_shexp"},
      {"shared_weight", "ffn_gate_inp_shexp"},
  };
  return kNames;
}

/// Returns the tensor's name without the block number.
std::string name_of(
    const LayerSpec& layer, const ParameterSpec& parameter, const ModelConfig& config) {
  if (layer.kind == LayerKind::kAttentionSinks) {
    return "attn_sinks.weight";
  }
  if (layer.role == "head") {
    return "output.weight";  // a tied head has the parameter name of the embedding
  }
  const std::string own = parameter.name.substr(layer.prefix.size());  // ".weight"
  if (own == ".e_score_correction_bias") {
    return "exp_probs_b.bias";
  }
  // llama.cpp names this norm post_attention_norm, although it is applied after the residual
  // addition.
  const bool is_behind = layer.role == "mlp_norm" && (config.family == model::Family::kGlm4Moe ||
                                                      config.family == model::Family::kGptOss);
  return std::string(is_behind ? "post_attention_norm" : names().at(layer.role)) + own;
}

bool is_matrix(const LayerSpec& layer) {
  return (layer.kind == LayerKind::kLinear && layer.role != "shared_weight") ||
         layer.kind == LayerKind::kTokenEmbedding || layer.kind == LayerKind::kHead;
}

/// Returns true for blocks whose matrices get more bits: the first and the last eighth of the
/// blocks, and every third block in between.
bool is_fine_block(int64_t block, int64_t blocks) {
  return block < blocks / 8 || block >= 7 * blocks / 8 || (block - blocks / 8) % 3 == 2;
}

/// Returns true if llama.cpp classifies the model as 70B, which depends on the number of blocks.
bool is_70b(const ModelConfig& config) {
  const std::string architecture = architecture_of(config);
  return config.layers == 80 &&
         (architecture == "qwen2" || (architecture == "llama" && config.heads != config.kv_heads));
}

/// Returns the type of small matrices that get more bits: keys, values and attention outputs of
/// models with eight experts, and values that many heads share.
std::optional<GgufType> type_of_attention(
    const LayerSpec& layer, const ModelConfig& config, FileType file, bool is_fine) {
  const std::string_view role = layer.role;
  if (config.experts.count == 8 && (role == "value" || role == "key")) {
    return GgufType::kQ8_0;
  }
  if (config.experts.count == 8 && role == "attention_out" && file == FileType::kQ4_K_M) {
    return GgufType::kQ5_K;
  }
  if (role == "value" && !is_fine && file == FileType::kQ4_K_M && is_70b(config)) {
    return GgufType::kQ5_K;
  }
  return std::nullopt;
}

/// Returns the intended type. The caller checks if its blocks divide the width.
GgufType wanted_type(const LayerSpec& layer, const ModelConfig& config, FileType file) {
  const std::string_view role = layer.role;
  const bool is_fine =
      (role == "value" || role.ends_with("_down")) && is_fine_block(layer.block, config.layers);
  if (file == FileType::kQ4_0 || file == FileType::kQ4_K_M) {
    if (const auto type = type_of_attention(layer, config, file, is_fine)) {
      return *type;
    }
  }
  const bool is_head = role == "head" || (role == "tokens" && config.ties_head());
  switch (file) {
    case FileType::kF16:
      return GgufType::kF16;
    case FileType::kQ8_0:
      return GgufType::kQ8_0;
    case FileType::kQ4_0:
      return is_head ? GgufType::kQ6_K : GgufType::kQ4_0;
    case FileType::kQ4_K_M:
      break;
  }
  return is_head || is_fine          ? GgufType::kQ6_K
         : role == "query_key_value" ? GgufType::kQ5_K
                                     : GgufType::kQ4_K;
}

/// Returns the type to use instead if a type's blocks do not divide the width.
GgufType next_type(GgufType type) {
  switch (type) {
    case GgufType::kQ4_K:
      return GgufType::kQ5_0;
    case GgufType::kQ5_K:
      return GgufType::kQ5_1;
    case GgufType::kQ6_K:
      return GgufType::kQ8_0;
    default:
      return GgufType::kF16;
  }
}

/// Reorders the rows of each head from [2, half] to [half, 2].
at::Tensor neighbours_together(const at::Tensor& values, int64_t heads) {
  const int64_t half = values.size(0) / heads / 2, columns = values.numel() / values.size(0);
  return values.view({heads, 2, half, columns}).transpose(1, 2).reshape(values.sizes());
}

/// Reorders rows from [query, key, value] per head to all queries, all keys, all values.
at::Tensor kinds_together(const at::Tensor& values, int64_t heads) {
  const int64_t size = values.size(0) / heads / 3, columns = values.numel() / values.size(0);
  return values.view({heads, 3, size, columns}).transpose(0, 1).reshape(values.sizes());
}

/// Converts a parameter to its layout in the file.
at::Tensor arrange(
    const LayerSpec& layer, const ModelConfig& config, bool turns_neighbours, at::Tensor values) {
  if (layer.in_first && values.dim() == 2) {
    values = values.t();
  }
  if (layer.kind == LayerKind::kRmsNormAroundOne) {
    values = values + 1;
  }
  if (turns_neighbours && (layer.role == "query" || layer.role == "key")) {
    values = neighbours_together(values, layer.role == "query" ? config.heads : config.kv_heads);
  }
  if (layer.out == model::Dim::kHeadTriples) {
    values = kinds_together(values, config.heads);
  }
  return values.contiguous();
}

/// Returns the divisors of the rotary frequencies (Llama 3 scaling).
Tensor rope_factors(const ModelConfig& config) {
  model::Rope plain = config.rope;
  plain.type = model::RopeType::kDefault;
  const auto scaled = model::rope_frequencies(config, 1).frequencies;
  const auto whole = model::rope_frequencies(config, plain, 1).frequencies;
  const at::Tensor factors = at::empty({std::ssize(whole)}, at::kFloat);
  for (size_t i = 0; i < whole.size(); ++i) {
    factors.mutable_data_ptr<float>()[i] = whole[i] / scaled[i];
  }
  return {{"rope_freqs.weight", factors.sizes().vec(), GgufType::kF32}, [factors](const Values&) {
            return factors;
          }};
}

class TensorList {
 public:
  TensorList(const ModelConfig& config, FileType file, std::vector<std::string>& notes)
      : config_(config),
        file_(file),
        notes_(notes),
        turns_neighbours_(turns_neighbours(architecture_of(config))) {}

  /// `experts` contains the layers of one role in a block: a single layer, or one layer per expert.
  void add(const std::vector<LayerSpec>& experts) {
    const LayerSpec& first = experts.front();
    if (first.role != "expert_gate_up") {
      add(experts, Part::kWhole);
      return;
    }
    std::vector<LayerSpec> halves = experts;
    for (const auto& [role, part] :
         {std::pair("expert_gate", Part::kEven), std::pair("expert_up", Part::kOdd)}) {
      for (LayerSpec& layer : halves) {
        layer.role = role;
      }
      add(halves, part);
    }
  }

  std::vector<Tensor> tensors;

 private:
  /// Rows of a layer to write. In gpt-oss, rows of gate and up alternate.
  enum class Part { kWhole, kEven, kOdd };

  void add(const std::vector<LayerSpec>& experts, Part part) {
    const LayerSpec& first = experts.front();
    for (size_t i = 0; i < first.parameters.size(); ++i) {
      const ParameterSpec& parameter = first.parameters[i];
      TensorInfo info;
      info.name = (first.block < 0 ? "" : fmt::format("blk.{}.", first.block)) +
                  name_of(first, parameter, config_);
      info.shape =
          first.role == "shared_weight" ? std::vector{parameter.elements()} : parameter.shape;
      if (first.in_first && i == 0) {
        std::reverse(info.shape.begin(), info.shape.end());
      }
      if (part != Part::kWhole) {
        info.shape.front() /= 2;
      }
      info.type = i == 0 && is_matrix(first) ? fitting_type(first, info) : GgufType::kF32;
      if (first.expert >= 0) {
        info.shape.insert(info.shape.begin(), std::ssize(experts));
      }
      tensors.push_back({std::move(info), numbers_of(experts, i, part)});
    }
  }

  GgufType fitting_type(const LayerSpec& layer, const TensorInfo& info) {
    const GgufType wanted = wanted_type(layer, config_, file_);
    const int64_t width = info.shape.back();
    GgufType type = wanted;
    while (width % ops::layout_of(type).elements != 0) {
      type = next_type(type);
    }
    if (type != wanted) {
      const std::string note = fmt::format(
          "{} in {} instead of {}: {} is not divisible by {}",
          names().at(layer.role),
          ops::layout_of(type).name,
          ops::layout_of(wanted).name,
          width,
          ops::layout_of(wanted).elements);
      if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) {
        notes_.push_back(note);
      }
    }
    return type;
  }

  std::function<at::Tensor(const Values&)> numbers_of(
      const std::vector<LayerSpec>& experts, size_t parameter, Part part) const {
    return [experts, parameter, part, config = &config_, turns = turns_neighbours_](
               const Values& values) {
      std::vector<at::Tensor> parts;
      for (const LayerSpec& layer : experts) {
        const at::Tensor whole =
            arrange(layer, *config, turns, values(layer, layer.parameters[parameter]));
        parts.push_back(
            part == Part::kWhole
                ? whole
                : whole.slice(0, part == Part::kOdd ? 1 : 0, std::nullopt, 2).contiguous());
      }
      return parts.size() == 1 ? parts.front() : at::stack(parts);
    };
  }

  const ModelConfig& config_;
  FileType file_;
  std::vector<std::string>& notes_;
  bool turns_neighbours_;
};

}  // namespace

std::vector<std::string> file_type_names() {
  std::vector<std::string> names;
  for (const auto& [name, type] : kFileTypes) {
    names.emplace_back(name);
  }
  return names;
}

FileType file_type(std::string_view name) {
  return std::find_if(
             kFileTypes.begin(),
             kFileTypes.end(),
             [&](const auto& type) { return type.first == name; })
      ->second;
}

std::vector<Tensor> tensors_of(
    const ModelConfig& config, FileType type, std::vector<std::string>& notes) {
  TensorList list(config, type, notes);
  std::map<std::pair<int64_t, std::string>, std::vector<LayerSpec>> experts;  // by block and role
  for (const LayerSpec& layer : model::describe(config)) {
    if (layer.expert < 0) {
      list.add({layer});
      continue;
    }
    auto& all = experts[{layer.block, layer.role}];
    all.push_back(layer);
    if (std::ssize(all) == config.experts.count) {
      list.add(all);
    }
  }
  if (writes_tied_head(config)) {
    list.add({*model::tied_head(config)});
  }
  if (config.rope.type == model::RopeType::kLlama3) {
    list.tensors.push_back(rope_factors(config));
  }
  return std::move(list.tensors);
}

}  // namespace lockstep::train::gguf
