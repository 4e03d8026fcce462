// Job description: model, parallelism and properties of the training program. Input of cost model,
// memory estimate, simulator and search.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/mesh.h"
#include "model/model_config.h"
#include "plan/workload/blocks.h"
#include "plan/workload/model_sizes.h"
#include "schedule/schedule.h"

namespace lockstep::plan {

enum class Precision {
  kFloat32,
  kMixed16,  // bfloat16 or float16 products
  kFloat8,   // 8-bit products in the blocks, 16-bit elsewhere
};

enum class Recompute {
  kNone,
  kElementwise,  // norms and activations: cheap to recompute, nearly half of the stored bytes
  kActivation,   // output of the MLP's activation function
  kAttention,    // attention scores (Korthikanti et al., 2022, "selective")
  kOperations,   // everything except every second matrix product ("selective op")
  kHalf,         // every second block
  kFull,         // every block: only its input is stored
};
std::string_view recompute_name(Recompute recompute);

/// Scaling granularity of 8-bit products.
enum class Scaling {
  kTensor,
  kRow,    // one scale per row; not faster than 16 bits
  kBlock,  // one scale per 32 elements or similar
};

enum class Offload { kNone, kOptimizer, kAll };  // offloaded to host memory; kAll: also parameters
std::string_view offload_name(Offload offload);
enum class OffloadTo { kHost, kNvme };

/// Attention of context-parallel ranks.
enum class ContextAttention {
  kRing,     // keys and values are passed around a ring (Liu et al., 2023)
  kUlysses,  // all-to-all between sequence shards and heads (Jacobs et al., 2023)
};

/// Properties of a training program. None of them is fitted.
struct Software {
  bool fused_attention = true;      // scores are not written to memory (FlashAttention)
  bool fused_elementwise = true;    // few kernels for norms, activations, dropout and residuals
  double attention_generation = 1;  // rate of the attention kernel relative to the fitted rate
  bool flat_gather = false;         // each rank gathers units through one network port
  bool overlap_data = true;         // gradient reduction and unit gathering overlap with compute
  double overlap_tensor = 0;  // fraction of tensor-parallel collectives that overlaps with products
  Scaling scaling = Scaling::kTensor;
  // 8-bit products: inputs are stored in 16 bits, and inputs and weights are rounded at every use.
  bool rounds_again = false;
  double rounding_bytes = 4;     // bytes moved per rounded element
  bool waits_for_host = false;   // host waits between the kernels of a recomputed block
  bool early_libraries = false;  // matrix kernels from the device's first year
  bool recompute_stops_early =
      false;  // last product of a block is not recomputed because its output is unused
  bool reduces_whole = false;  // gradients are all-reduced although the optimizer is sharded
  bool cuts_messages = true;   // each tensor rank sends a slice of a pipeline message even without
                               // sequence parallelism
  bool blocking_messages = false;        // sending a pipeline message blocks the sender
  bool waits_for_messages = false;       // host waits for every pipeline message
  bool reduce_each_micro_batch = false;  // reduces sharded gradients after every micro-batch
  // With zero-bubble schedules, a rank updates its parameters without waiting for the gradient
  // norm. The update is corrected afterwards if the norm was NaN, Inf or too large (Qi et al.,
  // 2023, section 4).
  bool lone_optimizer_steps = false;
  bool dropout = false;
  bool fused_softmax = true;          // one kernel scales, masks and normalizes scores in memory
  bool fused_score_dropout = false;   // softmax kernel of scores in memory includes dropout
  bool offloads_activations = false;  // Offload::kAll also offloads block inputs
  double weight_bytes = 2;            // bytes per parameter in the compute type
  double gradient_bytes = 2;          // bytes per stored gradient
  double sum_bytes = 0;  // bytes per accumulated and communicated gradient; 0: gradient_bytes
  double optimizer_bytes = 12;     // bytes of master copy and moments per parameter
  double reduce_bytes = 2;         // bytes per communicated gradient
  double logit_bytes = 6;          // bytes stored per logit for the backward pass
  double shared_logit_bytes = 0;   // logit_bytes if tensor ranks shard the vocabulary; 0: the same
  double logit_limit = 1e30;       // maximum bytes of logits in memory at a time
  double head_gradient_bytes = 0;  // gradient bytes per head weight, in memory with the logits
  double head_sum_bytes = 0;  // gradient sum bytes per head weight, for logits computed in chunks
  double mask_bytes = 1;      // bytes of dropout mask stored per element for the backward pass
  bool keeps_gated = true;    // stores the gate both before and after its activation
  bool keeps_ungated = true;  // backward pass of an ungated activation needs more than its output
  bool keeps_exchanged = false;  // results of context- and tensor-parallel exchanges are stored
                                 // instead of communicated again in the backward pass
  bool fused_head = false;       // CPUs: head uses fused loops over panels of rows
  bool lays_out = false;         // CPUs: packs one operand of weight gradients
  double threads = 1;            // CPUs: threads per rank
  double unit_bytes = 25 << 20;  // neighboring units of up to this many bytes share a buffer
  double update_copy = 0;        // bytes per parameter copied while its unit is updated
  double update_scratch = 0;     // bytes of other temporaries in an update
  double update_bytes = 30;      // bytes moved by the optimizer per parameter
  double sum_bytes_moved = 0;    // bytes moved per gradient to accumulate micro-batches
  double copy_bytes = 0;   // bytes moved per gathered parameter to copy into and out of buffers
  double merge_bytes = 8;  // bytes per output element, for each further step of ring attention
  double bucket_bytes = 100e6;    // bytes of communication buffers per rank
  bool reduces_in_place = false;  // gradients are reduced in the accumulation buffer, without other
                                  // buffers, except in stage 2, where that buffer is not persistent
  double unit_parameters = 1e30;  // maximum parameters gathered at a time (ZeRO stage 3)
  bool device_is_host = false;    // offloading to host memory has no effect, and free memory can be
                                  // reused for tensors of any size, so only the peak counts
  bool head_in_forward = false;   // head gradients are computed with the loss
  bool balances_stages = false;   // stages are balanced by the cost of layers and head
  double tensor_copy = 0;         // bytes copied per byte reduced by a tensor-parallel collective
  double sequence_copy = 0;       // tensor_copy with sequence parallelism
  bool ring_in_memory = false;    // ring attention uses separate kernels with scores in memory
  double context_bytes = 1.2e9;   // bytes of driver, libraries and communicators
  double fragmentation = 0.12;    // fraction of activations and temporaries lost by the allocator
};

/// Schedule from a file (Kind::kFile).
struct ListedSchedule {
  std::string path;
  schedule::Schedule schedule;
};

struct Job {
  model::ModelConfig model;
  int64_t sequence = 1024;
  int64_t source = 0;        // source tokens of an encoder; 0: none
  int64_t global_batch = 1;  // sequences per step
  int64_t micro_batch = 1;   // sequences per micro-batch of a data-parallel rank
  mesh::Mesh mesh;
  int zero_stage = 0;
  int expert_ranks = 1;  // data- and context-parallel ranks over which experts are distributed
  int shard_ranks = 0;   // neighboring ranks across which state is sharded; each group holds a
                         // replica; 0: all ranks
  bool sequence_parallel = false;
  ContextAttention context_attention = ContextAttention::kRing;
  schedule::Kind schedule = schedule::Kind::kOneFOneB;
  std::shared_ptr<const ListedSchedule> listed;  // only for Kind::kFile
  int virtual_stages = 1;
  double greedy_held = 0;  // if positive, the schedule is generated from predicted times with at
                           // most this many micro-batches in flight
  Recompute recompute = Recompute::kNone;
  double recompute_share = 1;  // fraction of blocks with kFull; the others use `recompute_others`
  Recompute recompute_others = Recompute::kElementwise;
  Offload offload = Offload::kNone;
  OffloadTo offload_to = OffloadTo::kHost;
  double activations_away = 0;  // fraction of the activations offloaded to host memory
  int64_t adapter_rank =
      0;  // LoRA rank (Hu et al., 2021) of adapters on block matrices; 0: full training
  double adapter_share = 1;         // trained parameters relative to adapters on every matrix
  bool adapters_decompose = false;  // DoRA (Liu et al., 2024)
  bool adapters_drop = false;       // adapters apply dropout to their input
  double frozen_bytes = 2;  // bytes per frozen weight of linear layers in blocks: 2, or less if
                            // quantized; other frozen weights have the compute type
  double reference_bytes =
      0;  // bytes per parameter of a read-only reference model with the same plan; 0: none
  int in_memory_checkpoints = 0;  // copies of a rank's shard of the state in host memory
  Precision precision = Precision::kMixed16;
  double float8_share = 1;  // fraction of blocks with 8-bit products under kFloat8
  Software software;
  std::vector<int64_t> split;  // blocks per stage; empty: determined by split_layers()

  /// Returns the number of micro-batches per step of one data-parallel rank, rounded up.
  int64_t micro_batches() const;
  /// Returns the number of tokens in a sequence of a stream.
  int64_t length(Stream stream) const { return stream == Stream::kTarget ? sequence : source; }
  /// Return the number of tokens of a micro-batch on one context-parallel rank, in one stream and
  /// in all streams.
  double micro_tokens(Stream stream = Stream::kTarget) const;
  double all_micro_tokens() const;
  /// Returns the corresponding data.sequence_length: the source length if there is a source. The
  /// target then has one more token, the decoder's start token.
  int64_t data_length() const { return source > 0 ? source : sequence; }
  void set_data_length(int64_t length);
  /// Returns the number of tokens in a step, over all streams.
  double step_tokens() const;
  /// Returns the bytes per element of the compute type.
  double compute_bytes() const { return precision == Precision::kFloat32 ? 4 : 2; }
  /// Returns the number of ranks that shard the states in ZeRO stages 1 to 3.
  double sharing() const;
  /// Returns the bytes per stored and communicated gradient.
  double gradient_bytes() const;
  double reduce_bytes() const;
};

/// Returns true unless the schedule is a file that does not match the number of pipeline ranks or
/// needs more micro-batches.
bool schedule_goes(const Job& job);
/// Returns the number of stages of the pipeline: stages per rank times ranks.
int64_t stages_of(const Job& job);
/// Returns the pipeline rank of a stage.
int rank_of_stage(const Job& job, int64_t stage);
/// Returns the number of blocks per stage, [stages]: equal if the layers are divisible, otherwise
/// as even as possible with embedding and head counted as one block each.
std::vector<int64_t> split_layers(int64_t layers, int64_t stages);
/// Returns the number of blocks per stage, [stages_of(job)]: the job's split, or the default of its
/// software.
std::vector<int64_t> split_layers(const Job& job);
/// Return block counts by kind per stage, [stages_of(job)], and per pipeline rank, [pipeline].
std::vector<BlockCounts> stage_blocks(const Job& job);
std::vector<BlockCounts> rank_blocks(const Job& job);
/// Time of a stage with layers [first, end), including its embedding or head. Infinite if they do
/// not fit.
using StageCost = std::function<double(int64_t stage, int64_t first, int64_t end)>;
/// Returns the split that minimizes the time of the slowest stage, by dynamic programming over
/// stages and layers. Every stage gets at least one block if there are enough. Empty if every split
/// is infinite.
std::vector<int64_t> balance_layers(int64_t layers, int64_t stages, const StageCost& cost);

/// Returns the parameter counts of a model. The reference is valid until the calling thread passes
/// another model.
const ParameterCounts& count_parameters(const model::ModelConfig& model);
/// Returns the number of parameters used per token, which excludes inactive experts.
double active_parameters(const model::ModelConfig& model);
/// Returns the number of adapter parameters in these blocks: rank times (inputs + outputs) per
/// adapted matrix.
double adapter_parameters(const Job& job, const BlockCounts& blocks);
/// Returns the number of weights in the blocks' linear layers.
double linear_parameters(const model::ModelConfig& model, const BlockCounts& blocks);
/// Returns the number of weights in the blocks' experts.
double expert_parameters(const model::ModelConfig& model, const BlockCounts& blocks);
/// Returns the bytes per quantized weight: 8 bits, or 4 bits plus scales. Double quantization also
/// quantizes the scales.
double packed_bytes(int64_t bits, bool double_quantization, int64_t block_size = 64);
/// Returns the number of trained parameters of a block: all, or its adapters.
double trained_parameters(const Job& job, BlockKind kind);
/// Returns the bytes of the largest gathered block on one tensor rank. Frozen weights are gathered
/// in quantized form.
double gathered_block_bytes(const Job& job);
/// Returns true if a bias is added to attention scores, which fused kernels do not support.
bool has_score_bias(const model::ModelConfig& model);

/// Returns the model's floating-point operations per step, forward and backward, without
/// recomputation: 6 per weight and token, plus attention without the causal mask (the convention of
/// published MFU figures).
double model_flops(const Job& job);

}  // namespace lockstep::plan
