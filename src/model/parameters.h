// The parameters of a model: names, shapes, how each starts, and which decay. Names and shapes are
// those of Hugging Face's files, so that a shard of a parameter is a run of a file's bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// How a parameter starts.
struct Initialization {
  enum class Kind { kZeros, kOnes, kNormal };
  Kind kind = Kind::kNormal;
  double deviation = 0;   // kNormal: the standard deviation; the mean is 0
  int64_t zero_row = -1;  // kNormal: a row that is zero (the padding token's), or -1
  bool operator==(const Initialization&) const = default;
};

struct ParameterSpec {
  std::string name;  // Hugging Face's full name: "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t>
      shape;  // as in the file: GPT-2's matrices are [in, out], all others [out, in]
  Initialization init;
  bool decays = false;  // weight decay applies (matrices and embeddings; not norms, not biases)
  int64_t unit = 0;     // 0: the embedding; from 1 on, the blocks; behind them the head

  int64_t elements() const;
};

/// Every parameter once (a tied head is the embedding), in the order of use.
std::vector<ParameterSpec> parameters_of(const ModelConfig& config);
/// The number of parameters, tied ones once.
int64_t parameter_count(const ModelConfig& config);

/// The names that parameters are made of, by layer.
std::string layer_prefix(const ModelConfig& config, int64_t layer);  // "model.layers.3."
std::string embedding_name(const ModelConfig& config);               // "model.embed_tokens.weight"
std::string head_name(
    const ModelConfig& config);  // "lm_head.weight", "score.weight", or the embedding's if tied
/// Of the table of relative positions that belongs to the stack whose first block is `layer`.
std::string relative_positions_prefix(const ModelConfig& config, int64_t layer);
/// Other names under which files hold a parameter: that of a tied head, of the embedding in each
/// stack of an encoder-decoder.
std::vector<std::string> aliases_of(const ModelConfig& config, const std::string& name);

}  // namespace lockstep::model
