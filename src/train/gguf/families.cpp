// Maps model families to GGUF: architectures, supported options and metadata.
#include "train/gguf/families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::train::gguf {
namespace {

using model::Activation;
using model::Family;
using model::ModelConfig;
using model::Rope;
using model::RopeType;

struct Architecture {
  Family family;
  const char* name;
  bool has_biases = false;          // biases of queries, keys and values
  bool has_further_biases = false;  // biases of the other linears
  int window_pattern =
      0;  // in each group of this many layers, all but the last have a window; 0: no layer has one
  int wide_layers = 0;  // models with this many layers divide scores by sqrt(hidden_size / heads)
  bool has_part_rotated = false;  // supports rotating only the first elements of a head
  bool needs_biases = false;      // requires biases of the attention's linears
  bool needs_head = false;        // requires a separate output tensor, even if the model ties it
};
constexpr std::array kArchitectures{
    Architecture{Family::kGpt2, "gpt2", true, true},
    Architecture{Family::kLlama, "llama", true, true},
    Architecture{Family::kMistral, "llama", true, true},
    Architecture{Family::kMixtral, "llama"},
    Architecture{Family::kQwen2, "qwen2", true},
    Architecture{Family::kQwen3, "qwen3"},
    Architecture{Family::kQwen3Moe, "qwen3moe"},
    Architecture{
        .family = Family::kQwen2Moe, .name = "qwen2moe", .has_biases = true, .needs_head = true},
    Architecture{Family::kOlmoe, "olmoe"},
    Architecture{Family::kOlmo2, "olmo2"},
    Architecture{Family::kPhi3, "phi3"},
    Architecture{
        .family = Family::kGlm4Moe,
        .name = "glm4moe",
        .has_biases = true,
        .has_part_rotated = true},
    Architecture{
        .family = Family::kGptOss,
        .name = "gpt-oss",
        .has_biases = true,
        .has_further_biases = true,
        .window_pattern = 2,
        .needs_biases = true,
        .needs_head = true},
    Architecture{
        .family = Family::kGptNeoX,
        .name = "gptneox",
        .has_biases = true,
        .has_further_biases = true,
        .has_part_rotated = true,
        .needs_biases = true},
    Architecture{Family::kGemma, "gemma"},
    Architecture{Family::kGemma2, "gemma2", false, false, 2, 46},
    Architecture{Family::kGemma3, "gemma3", false, false, 6, 62},
};

const Architecture* find(const ModelConfig& config) {
  const auto found = std::find_if(
      kArchitectures.begin(), kArchitectures.end(), [&](const Architecture& architecture) {
        return architecture.family == config.family;
      });
  return found == kArchitectures.end() ? nullptr : &*found;
}

bool is_any_of(Family family, std::initializer_list<Family> families) {
  return std::find(families.begin(), families.end(), family) != families.end();
}

bool is_llama(const Architecture& architecture) {
  return std::string_view(architecture.name) == "llama";
}

/// Returns true if the sliding windows are on the layers where llama.cpp has them.
bool has_its_windows(const Architecture& architecture, const ModelConfig& config) {
  const int pattern = architecture.window_pattern;
  int64_t window = 0;
  for (size_t layer = 0; layer < config.sliding_windows.size(); ++layer) {
    const int64_t here = config.sliding_windows[layer];
    const bool may_have =
        pattern > 0 && layer % static_cast<size_t>(pattern) + 1 < static_cast<size_t>(pattern);
    if ((here > 0) != may_have || (here > 0 && window > 0 && here != window)) {
      return false;
    }
    window = std::max(window, here);
  }
  return window > 0 || pattern == 0;
}

/// Returns the value whose square root divides the attention scores.
double score_scalar(const Architecture& architecture, const ModelConfig& config) {
  return static_cast<double>(
      config.layers == architecture.wide_layers ? config.hidden_size / config.heads
                                                : config.head_dim);
}

/// Returns true for YaRN scaling in which only the factor differs from the default values.
bool is_plain_yarn(const Rope& rope, bool truncates) {
  return rope.beta_fast == 32 && rope.beta_slow == 1 && (rope.truncate || !truncates) &&
         !rope.attention_factor && !rope.mscale && !rope.mscale_all_dim;
}

void check_rope(
    const Architecture& architecture, const Rope& rope, std::vector<std::string>& problems) {
  const bool is_known =
      rope.type == RopeType::kNone || rope.type == RopeType::kDefault ||
      rope.type == RopeType::kLinear ||
      (rope.type == RopeType::kLlama3 && is_llama(architecture)) ||
      (rope.type == RopeType::kYarn && is_plain_yarn(rope, architecture.family != Family::kGptOss));
  if (!is_known) {
    problems.emplace_back("its rope_type cannot be represented");
  }
  if (rope.in_pairs || (rope.partial_rotary_factor != 1 && !architecture.has_part_rotated)) {
    problems.emplace_back("its rotary embedding covers another part of a head");
  }
}

void check_experts(
    const Architecture& architecture,
    const ModelConfig& config,
    std::vector<std::string>& problems) {
  const model::Experts& experts = config.experts;
  const Family family = architecture.family;
  const bool is_mixture = is_any_of(
      family,
      {Family::kMixtral,
       Family::kQwen3Moe,
       Family::kQwen2Moe,
       Family::kOlmoe,
       Family::kGlm4Moe,
       Family::kGptOss});
  if (!is_mixture) {
    return;
  }
  if (experts.count == 0) {
    problems.emplace_back("it has no experts");
    return;
  }
  // Only files of GLM-4.5 record this option. For other families, its value in llama.cpp is fixed.
  const bool normalizes = !is_any_of(family, {Family::kOlmoe, Family::kQwen2Moe});
  if (family != Family::kGlm4Moe && experts.normalizes != normalizes) {
    problems.emplace_back("norm_topk_prob has another value");
  }
  if (family != Family::kGlm4Moe && !experts.dense_layers.empty()) {
    problems.emplace_back("some of its layers have no experts");
  }
  if (family == Family::kGptOss && (experts.gate_limit != 7 || experts.gate_slope != 1.702)) {
    problems.emplace_back("swiglu_limit is not 7 or swiglu_alpha is not 1.702");
  }
  if (family == Family::kQwen2Moe && config.heads * config.head_dim != config.hidden_size) {
    problems.emplace_back("the total width of its heads is not hidden_size");
  }
}

std::vector<std::string> problems_of(const Architecture& architecture, const ModelConfig& config) {
  std::vector<std::string> problems;
  const auto need = [&](bool holds, const char* problem) {
    if (!holds) {
      problems.emplace_back(problem);
    }
  };
  const bool is_gelu =
      config.activation == Activation::kGelu || config.activation == Activation::kGeluTanh;
  const bool wants_gelu = architecture.family == Family::kGpt2 ||
                          architecture.family == Family::kGptNeoX || config.embedding_scale != 1;
  need(
      wants_gelu ? is_gelu : config.activation == Activation::kSilu,
      "its activation function is not supported");
  need(!config.head.classifies(), "it is a classifier");
  need(architecture.has_biases || !config.qkv_bias, "attention_bias is true");
  need(
      architecture.has_further_biases || !(config.attention_out_bias || config.mlp_bias),
      "its linears have biases");
  need(!architecture.needs_biases || config.qkv_bias, "attention_bias is false");
  need(
      config.scale_attention && !config.scale_attention_by_inverse_layer,
      "it scales attention scores differently");
  need(
      !config.query_scalar || *config.query_scalar == score_scalar(architecture, config),
      "query_pre_attn_scalar is not the size of a head");
  need(config.query_key_value_limit == 0, "it has clip_qkv");
  need(
      architecture.window_pattern == 0 || has_its_windows(architecture, config),
      "its sliding windows are on other layers");
  check_experts(architecture, config, problems);
  check_rope(architecture, config.rope, problems);
  return problems;
}

const Architecture& checked(const ModelConfig& config) {
  const Architecture* const found = find(config);
  if (found == nullptr) {
    std::vector<std::string_view> names;
    for (const Architecture& architecture : kArchitectures) {
      names.push_back(model::family_name(architecture.family));
    }
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} cannot be written as GGUF", model::family_name(config.family)),
        fmt::format("supported families: {}", fmt::join(names, ", ")));
  }
  if (const auto problems = problems_of(*found, config); !problems.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "this {} cannot be written as GGUF because llama.cpp would compute a different result: "
            "{}",
            model::family_name(config.family),
            fmt::join(problems, "; ")),
        "export it as a folder, without --gguf");
  }
  return *found;
}

uint32_t size(int64_t value) {
  return static_cast<uint32_t>(value);
}

void add_rope(const std::string& prefix, const ModelConfig& config, Metadata& metadata) {
  const Rope& rope = config.rope;
  if (rope.type == RopeType::kNone) {
    return;
  }
  metadata.emplace_back(prefix + "rope.dimension_count", size(config.rotary_dim(rope)));
  metadata.emplace_back(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  if (config.window_rope) {
    metadata.emplace_back(
        prefix + "rope.freq_base_swa", static_cast<float>(config.window_rope->theta));
  }
  if (rope.type == RopeType::kLinear || rope.type == RopeType::kYarn) {
    const bool is_yarn = rope.type == RopeType::kYarn;
    metadata.emplace_back(prefix + "rope.scaling.type", is_yarn ? "yarn" : "linear");
    metadata.emplace_back(
        prefix + "rope.scaling.factor", static_cast<float>(rope.factor.value_or(1)));
    if (is_yarn) {
      metadata.emplace_back(
          prefix + "rope.scaling.original_context_length", size(rope.original_max_positions));
    }
  }
}

void add_experts(const std::string& prefix, const ModelConfig& config, Metadata& metadata) {
  const model::Experts& experts = config.experts;
  if (experts.count == 0) {
    return;
  }
  const auto add = [&](const char* key, Value value) {
    metadata.emplace_back(prefix + key, std::move(value));
  };
  add("expert_count", size(experts.count));
  add("expert_used_count", size(experts.per_token));
  add("expert_feed_forward_length", size(experts.width));
  if (config.family == Family::kQwen2Moe) {
    add("expert_shared_feed_forward_length", size(experts.shared_width));
  }
  if (config.family == Family::kGlm4Moe) {
    constexpr uint32_t kSigmoid = 2;
    add("expert_shared_count", size(experts.shared_width / experts.width));
    add("leading_dense_block_count", size(std::ssize(experts.dense_layers)));
    add("expert_gating_func", kSigmoid);
    add("expert_weights_scale", static_cast<float>(experts.weight_factor));
    add("expert_weights_norm", experts.normalizes);
    if (experts.groups > 1) {
      add("expert_group_count", size(experts.groups));
      add("expert_group_used_count", size(experts.groups_per_token));
    }
  }
}

}  // namespace

std::string architecture_of(const ModelConfig& config) {
  return checked(config).name;
}

std::vector<std::string> notes_of(const ModelConfig& config) {
  const Architecture& architecture = checked(config);
  const auto window =
      std::max_element(config.sliding_windows.begin(), config.sliding_windows.end());
  std::vector<std::string> notes;
  if (window != config.sliding_windows.end() && *window > 0 && architecture.window_pattern == 0) {
    notes.push_back(fmt::format(
        "GGUF has no sliding window for {}: beyond {} positions llama.cpp attends to more tokens "
        "than the model",
        model::family_name(config.family),
        *window));
  }
  if (config.rope.type == RopeType::kYarn && !config.rope.truncate) {
    notes.emplace_back(
        "llama.cpp rounds the bounds of YaRN's ramp (truncate: true), but the model does not: its "
        "rotary angles differ slightly");
  }
  return notes;
}

bool writes_tied_head(const ModelConfig& config) {
  return config.ties_head() && checked(config).needs_head;
}

bool turns_neighbours(const std::string& architecture) {
  return architecture == "llama";
}

Metadata model_metadata(const ModelConfig& config) {
  const Architecture& architecture = checked(config);
  const std::string prefix = std::string(architecture.name) + ".";
  const bool is_layer_norm = config.family == Family::kGpt2 || config.family == Family::kGptNeoX;
  Metadata metadata{
      {"general.architecture", architecture.name},
      {prefix + "vocab_size", size(config.vocab_size)},
      {prefix + "context_length", size(config.max_positions)},
      {prefix + "embedding_length", size(config.hidden_size)},
      {prefix + "block_count", size(config.layers)},
      {prefix + "feed_forward_length",
       size(
           config.experts.count > 0 && config.intermediate_size == 0 ? config.experts.width
                                                                     : config.intermediate_size)},
      {prefix + "attention.head_count", size(config.heads)},
      {prefix + "attention.head_count_kv", size(config.kv_heads)},
      {prefix + "attention.key_length", size(config.head_dim)},
      {prefix + "attention.value_length", size(config.head_dim)},
      {prefix +
           (is_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
       static_cast<float>(config.norm_eps)}};
  add_rope(prefix, config, metadata);
  add_experts(prefix, config, metadata);
  if (architecture.window_pattern > 0 || config.family == Family::kPhi3) {
    const auto window =
        std::max_element(config.sliding_windows.begin(), config.sliding_windows.end());
    metadata.emplace_back(
        prefix + "attention.sliding_window",
        size(window == config.sliding_windows.end() ? 0 : *window));
  }
  for (const auto& [key, cap] :
       {std::pair("attn_logit_softcapping", config.score_cap),
        std::pair("final_logit_softcapping", config.logit_cap)}) {
    if (cap > 0) {
      metadata.emplace_back(prefix + key, static_cast<float>(cap));
    }
  }
  if (config.family == Family::kPhi3) {
    metadata.emplace_back(
        prefix + "rope.scaling.original_context_length", size(config.max_positions));
  }
  if (config.family == Family::kGptNeoX) {
    metadata.emplace_back(prefix + "use_parallel_residual", config.parallel_residual);
  }
  return metadata;
}

}  // namespace lockstep::train::gguf
