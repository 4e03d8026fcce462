// What a model is made of: its layers, their parameters, and what each dim of them runs along. The
// only list of them: models are made, loaded, cut, counted and saved by it. Names and shapes are
// those of Hugging Face's files, so that a shard of a parameter is a run of a file's bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// How a parameter starts.
struct Initialization {
  enum class Kind { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kNormal;
  double deviation = 0;   // kNormal: the standard deviation; kUniform: the bound; the mean is 0
  int64_t zero_row = -1;  // kNormal: a row that is zero (the padding token's), or -1
  bool operator==(const Initialization&) const = default;
};

/// What a dim runs along. Tensor parallelism cuts by it.
enum class Dim {
  kHidden,       // the residual stream
  kQueries,      // the query heads, one after the other
  kKeyValues,    // the key or the value heads
  kPackedHeads,  // the heads of queries, then of keys, then of values
  kHeadTriples,  // head by head: its query, its key, its value
  kHeads,        // a number for each query head
  kHeadDim,      // one head
  kWidth,        // inside of the MLP
  kExperts,      // a number for each expert of a mixture
  kExpertWidth,  // inside of one expert
  kSharedWidth,  // inside of the expert that all tokens go through
  kGatePairs,    // the same, number by number: of the gate and of what it is multiplied with
  kGatedWidth,   // the same twice: of the gate, then of what it is multiplied with
  kVocabulary,
  kClasses,
  kPositions,
  kTokenTypes,
  kDistances,  // between a query and a key, in buckets
  kRank,       // between the factors of an adapter
  kNewRows,    // the tokens whose rows of a table are trained apart
};

/// Where a parameter lies in a tensor that holds those of several layers.
struct PlaceInStack {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;       // of its first element; the others follow
  bool is_written = false;  // files are written so; else with a tensor for each
};

struct ParameterSpec {
  std::string name;  // Hugging Face's full name: "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t>
      shape;  // as in the file: GPT-2's matrices are [in, out], all others [out, in]
  Initialization init;
  bool decays = false;      // weight decay applies (matrices and embeddings; not norms, not biases)
  bool learns = true;       // else its gradient is zero whatever it reads, and it stays as it is
  bool is_float32 = false;  // whatever the type of the model's others
  int64_t unit = 0;         // 0: the embedding; from 1 on, the blocks; behind them the head
  std::vector<Dim> dims = {};                // as many as `shape` has
  std::vector<std::string> aliases = {};     // other names under which files hold it
  std::optional<PlaceInStack> stacked = {};  // how files hold it instead, some or all

  int64_t elements() const;
  /// Whether it maps one hidden state to another: a matrix that is neither an embedding nor a head.
  bool is_hidden_matrix() const;
};

enum class LayerKind {
  kTokenEmbedding,
  kPositionEmbedding,
  kRelativePositions,
  kLayerNorm,
  kRmsNorm,
  kExactRmsNorm,      // rounds once, behind the product with its weight
  kRmsNormAroundOne,  // the same, and multiplies by 1 + its weight
  kLinear,
  kRouter,          // scores of a mixture's experts
  kAttentionSinks,  // a score for each query head that no key has
  kHead,
  kHeadBias,  // of an encoder's head: of the tokens' logits, or of the classes'
};

/// A layer with parameters, by the role of the slot that it stands in (nn/slots.h).
struct LayerSpec {
  LayerKind kind = LayerKind::kLinear;
  std::string role;
  int64_t block = -1;  // of the whole model; -1: outside the blocks
  std::string prefix;  // of its parameters' names, without the dot
  std::vector<ParameterSpec> parameters;
  // Of a linear. What its inputs and outputs run along:
  Dim in = Dim::kHidden, out = Dim::kHidden;
  bool in_first = false;      // its weight is [in, out]
  bool reads_source = false;  // its input is what the encoder gives, and not its block's own stream
  int64_t expert = -1;        // of the block's mixture that it belongs to; -1: to none
  bool is_shared = false;     // of the expert of a mixture that every token goes through

  /// The first parameter. The others, if any, are biases.
  const ParameterSpec& weight() const { return parameters.front(); }
  int64_t elements() const;
  /// Whether its files hold it in one tensor with others, and so no module of that name.
  bool is_in_stack() const { return weight().stacked && weight().stacked->is_written; }
  /// Whether rows of the weight are looked up.
  bool is_looked_up() const {
    return kind == LayerKind::kTokenEmbedding || kind == LayerKind::kPositionEmbedding;
  }
  /// Whether the weight's first dim runs along what is read: a table is read by row.
  bool has_inputs_first() const { return in_first || is_looked_up(); }
};

/// The layers of the embedding's unit, of a block and of the head's unit, in the order of use. A
/// tied head has no layer: it is the embedding.
std::vector<LayerSpec> embedding_layers(const ModelConfig& config);
std::vector<LayerSpec> block_layers(const ModelConfig& config, int64_t block);
std::vector<LayerSpec> head_layers(const ModelConfig& config);
/// All of them.
std::vector<LayerSpec> describe(const ModelConfig& config);
/// Of a tied head what it is by its own name, with the embedding for its weight; of another
/// nothing.
std::optional<LayerSpec> tied_head(const ModelConfig& config);
/// An encoder-decoder's embedding as its encoder and its decoder call it, in this order: two
/// modules with one weight. Of another model none.
std::vector<LayerSpec> embeddings_of_stacks(const ModelConfig& config);

/// Every parameter once, in the order of use; and by name.
std::vector<ParameterSpec> parameters_of(const ModelConfig& config);
std::map<std::string, ParameterSpec> parameters_by_name(const ModelConfig& config);
/// The number of parameters, tied ones once.
int64_t parameter_count(const ModelConfig& config);

/// Whether a tensor of a folder is of a layer behind the model's, which is neither read nor
/// written.
bool is_of_further_layers(const std::string& name, const ModelConfig& config);

/// "model.embed_tokens.weight"
std::string embedding_name(const ModelConfig& config);
/// "lm_head.weight", "score.weight", or the embedding's if tied
std::string head_name(const ModelConfig& config);

}  // namespace lockstep::model
