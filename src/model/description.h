// Description of a model: its layers, their parameters, and the meaning of each dim. Used to
// create, load, shard, count and save models. Names and shapes follow Hugging Face checkpoints, so
// a shard of a parameter is a contiguous range of a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Initialization of a parameter.
struct Initialization {
  enum class Kind { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kNormal;
  double deviation = 0;   // kNormal: standard deviation, with mean 0; kUniform: bound
  int64_t zero_row = -1;  // kNormal: index of a row set to zero (the padding token), or -1
  bool operator==(const Initialization&) const = default;
};

/// Meaning of a parameter dim. Tensor parallelism shards by it.
enum class Dim {
  kHidden,       // residual stream
  kQueries,      // concatenated query heads
  kKeyValues,    // concatenated key or value heads
  kPackedHeads,  // query heads, then key heads, then value heads
  kHeadTriples,  // query, key and value of each head, head by head
  kHeads,        // one value per query head
  kHeadDim,      // elements of one head
  kWidth,        // inner width of the MLP
  kExperts,      // one value per expert
  kExpertWidth,  // inner width of an expert
  kSharedWidth,  // inner width of the shared expert
  kGatePairs,    // gate and up projection, interleaved element by element
  kGatedWidth,   // gate projection, then up projection
  kVocabulary,
  kClasses,
  kPositions,
  kTokenTypes,
  kDistances,  // buckets of relative distances
  kRank,       // rank of an adapter
  kNewRows,    // tokens with separately trained rows
};

/// Location of a parameter in a tensor that stacks several layers' parameters.
struct PlaceInStack {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;       // offset of the first element; elements are contiguous
  bool is_written = false;  // saved in stacked form; otherwise as one tensor per layer
};

struct ParameterSpec {
  std::string name;            // full Hugging Face name, "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // file layout: [in, out] for GPT-2 matrices, otherwise [out, in]
  Initialization init;
  bool decays = false;  // weight decay applies (matrices and embeddings, not norms and biases)
  bool learns = true;   // if false, the gradient is always zero and the parameter is not updated
  bool is_float32 = false;                // float32 regardless of the model's type
  int64_t unit = 0;                       // 0: embedding; 1 and up: blocks; last: head
  std::vector<Dim> dims = {};             // one entry per dim of `shape`
  std::vector<std::string> aliases = {};  // alternative names in checkpoints
  /// Location in a stacked tensor if checkpoints may store the parameter in one.
  std::optional<PlaceInStack> stacked = {};

  int64_t elements() const;
  /// Returns true for matrices that are neither an embedding nor a head.
  bool is_hidden_matrix() const;
};

enum class LayerKind {
  kTokenEmbedding,
  kPositionEmbedding,
  kRelativePositions,
  kLayerNorm,
  kRmsNorm,
  kExactRmsNorm,      // rounds once, after multiplying by the weight
  kRmsNormAroundOne,  // rounds once and multiplies by 1 + weight
  kLinear,
  kRouter,          // router of a mixture of experts
  kAttentionSinks,  // attention sink of each query head
  kHead,
  kHeadBias,  // bias of an encoder's head, per token or per class
};

/// Layer with parameters. Its role identifies its slot (nn/slots.h).
struct LayerSpec {
  LayerKind kind = LayerKind::kLinear;
  std::string role;
  int64_t block = -1;  // block index in the whole model; -1: outside the blocks
  std::string prefix;  // prefix of its parameter names, without the dot
  std::vector<ParameterSpec> parameters;
  // Linear layers only: meaning of inputs and outputs.
  Dim in = Dim::kHidden, out = Dim::kHidden;
  bool in_first = false;      // weight is [in, out]
  bool reads_source = false;  // input is the encoder's output instead of the block's hidden states
  int64_t expert = -1;        // index in the block's mixture of experts; -1: not part of an expert
  bool is_shared = false;     // belongs to a shared expert

  /// The weight is the first parameter; the others, if any, are biases.
  const ParameterSpec& weight() const { return parameters.front(); }
  int64_t elements() const;
  /// Returns true if checkpoints store it in a stacked tensor. No module of its name then exists.
  bool is_in_stack() const { return weight().stacked && weight().stacked->is_written; }
  /// Returns true for layers that look up rows of their weight.
  bool is_looked_up() const {
    return kind == LayerKind::kTokenEmbedding || kind == LayerKind::kPositionEmbedding;
  }
  /// Returns true if the weight's first dim is the input. Tables are indexed by row.
  bool has_inputs_first() const { return in_first || is_looked_up(); }
};

/// Return the layers of the embedding unit, a block and the head unit, in order of use. A tied head
/// has no layer because it uses the embedding.
std::vector<LayerSpec> embedding_layers(const ModelConfig& config);
std::vector<LayerSpec> block_layers(const ModelConfig& config, int64_t block);
std::vector<LayerSpec> head_layers(const ModelConfig& config);
/// Returns all layers of the model.
std::vector<LayerSpec> describe(const ModelConfig& config);
/// Returns a tied head as a layer under its own name, with the embedding as weight. Returns nullopt
/// if the head is not tied.
std::optional<LayerSpec> tied_head(const ModelConfig& config);
/// Returns an encoder-decoder's embedding under the module names of encoder and decoder, in this
/// order: two modules that share a weight. Empty for other models.
std::vector<LayerSpec> embeddings_of_stacks(const ModelConfig& config);

/// Return every parameter once: in order of use, or by name.
std::vector<ParameterSpec> parameters_of(const ModelConfig& config);
std::map<std::string, ParameterSpec> parameters_by_name(const ModelConfig& config);
/// Returns the number of parameters. Tied parameters count once.
int64_t parameter_count(const ModelConfig& config);

/// Returns true if a checkpoint tensor belongs to a layer after the model's last one. Such layers
/// are neither read nor written.
bool is_of_further_layers(const std::string& name, const ModelConfig& config);

/// "model.embed_tokens.weight"
std::string embedding_name(const ModelConfig& config);
/// "lm_head.weight", "score.weight", or the embedding's name if tied.
std::string head_name(const ModelConfig& config);

}  // namespace lockstep::model
