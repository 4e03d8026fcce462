// Job description: model, parallelism, and properties of the training program. Input of the cost
// model, the memory estimate, the simulator and the search.
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
  kElementwise,  // norms and activations: cheap, and nearly half of the stored bytes
  kActivation,   // output of the MLP's activation function
  kAttention,    // attention scores (Korthikanti et al., 2022, "selective")
  kOperations,   // everything but every second matrix product ("selective op")
  kHalf,         // every second block
  kFull,         // every block: only its input is stored
};
std::string_view recompute_name(Recompute recompute);

/// Scaling granularity of 8-bit products.
enum class Scaling {
  kTensor,
  kRow,    // one scale per row: not faster than 16 bits
  kBlock,  // one scale per 32 elements or similar
};

enum class Offload { kNone, kOptimizer, kAll };  // to host memory; kAll: also parameters
std::string_view offload_name(Offload offload);
enum class OffloadTo { kHost, kNvme };

/// Attention of context-parallel ranks.
enum class ContextAttention {
  kRing,     // keys and values circulate (Liu et al., 2023)
  kUlysses,  // all-to-all between sequence shards and heads (Jacobs et al., 2023)
};

/// Properties of a training program; none of them are fitted.
struct Software {
  bool fused_attention = true;      // scores never reach memory (FlashAttention)
  bool fused_elementwise = true;    // norms, activations, dropout and residuals in few kernels
  double attention_generation = 1;  // rate of its attention kernel relative to the fitted one
  bool flat_gather = false;         // units are gathered through one network port per rank
  bool overlap_data = true;         // gradient reduction and unit gathering overlap with compute
  double overlap_tensor =
      0;  // fraction of tensor-parallel collectives that overlaps with their products
  Scaling scaling = Scaling::kTensor;
  // For 8-bit products: inputs are stored in 16 bits; inputs and weights are rounded at every use:
  bool rounds_again = false;
  double rounding_bytes = 4;     // bytes read and written per rounded element
  bool waits_for_host = false;   // the host waits between the kernels of a recomputed block
  bool early_libraries = false;  // uses matrix kernels of the device's first year
  bool recompute_stops_early =
      false;  // the last product of a block is not recomputed, as its output is unused
  bool reduces_whole = false;  // gradients are all-reduced, although the optimizer is sharded
  bool cuts_messages = true;   // each tensor rank sends a slice of a pipeline message, also without
                               // sequence parallelism
  bool blocking_messages = false;        // a pipeline message blocks its sender
  bool waits_for_messages = false;       // the host waits for every pipeline message
  bool reduce_each_micro_batch = false;  // sharded gradients are reduced after every micro-batch
  // With zero-bubble schedules a rank updates without waiting, and the update is corrected
  // afterwards if the gradient norm was NaN, Inf or too large (Qi et al., 2023, section 4).
  bool lone_optimizer_steps = false;
  bool dropout = false;
  bool fused_softmax = true;  // scores in memory are scaled, masked and normalized in one kernel
  bool fused_score_dropout = false;   // dropout of scores in memory is part of their softmax kernel
  bool offloads_activations = false;  // with Offload::kAll, block inputs are also offloaded
  double weight_bytes = 2;            // per parameter used in computation
  double gradient_bytes = 2;          // per stored gradient
  double sum_bytes = 0;            // per accumulated gradient, stored and communicated; 0: the same
  double optimizer_bytes = 12;     // master copy and moments per parameter
  double reduce_bytes = 2;         // per communicated gradient
  double logit_bytes = 6;          // stored per logit for the backward pass
  double shared_logit_bytes = 0;   // the same if tensor ranks shard the vocabulary; 0: the same
  double logit_limit = 1e30;       // maximum bytes of logits computed at a time
  double head_gradient_bytes = 0;  // gradient of the head's weights, in memory with the logits
  double head_sum_bytes = 0;       // sum of the head's gradient if logits are computed in chunks
  double mask_bytes = 1;           // dropout mask per element, stored for the backward pass
  bool keeps_gated = true;         // stores the gate both before and after its activation
  bool keeps_ungated =
      true;  // the backward pass of an activation without a gate needs more than its output
  bool keeps_exchanged = false;  // results of context- and tensor-parallel exchanges are stored
                                 // instead of communicated again in the backward pass
  bool fused_head = false;       // for CPUs: the head uses fused loops over panels of rows
  bool lays_out = false;         // for CPUs: packs one operand of weight gradients
  double threads = 1;            // for CPUs: threads per rank
  double unit_bytes = 25 << 20;  // neighboring units of up to this many bytes share a buffer
  double update_copy = 0;        // per parameter, copied during the update of its unit
  double update_scratch = 0;     // other temporaries of an update
  double update_bytes = 30;      // read and written by the optimizer per parameter
  double sum_bytes_moved = 0;    // read and written per gradient to accumulate micro-batches
  double copy_bytes = 0;         // read and written per gathered parameter, into and out of buffers
  double merge_bytes = 8;  // per element of the attention output, for each further step of a ring
  double bucket_bytes = 100e6;    // communication buffers per rank
  bool reduces_in_place = false;  // gradients are reduced in the accumulation buffer, without other
                                  // buffers, except in stage 2, where that buffer is not persistent
  double unit_parameters = 1e30;  // maximum parameters gathered at a time (ZeRO stage 3)
  bool device_is_host = false;    // offloading to host memory has no effect, and free memory can be
                                  // reused for tensors of any size: only the peak counts
  bool head_in_forward = false;   // the head's gradients are computed with its loss
  bool balances_stages = false;   // layers are split over stages by the cost of layers and head
  double tensor_copy = 0;         // bytes copied per byte that a tensor-parallel collective reduces
  double sequence_copy = 0;       // the same with sequence parallelism
  bool ring_in_memory = false;    // ring attention uses separate kernels, with scores in memory
  double context_bytes = 1.2e9;   // driver, libraries and communicators
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
  int expert_ranks = 1;  // data- and context-parallel ranks that share the experts
  int shard_ranks =
      0;  // neighboring ranks that shard a state, replicated across groups; 0: all ranks
  bool sequence_parallel = false;
  ContextAttention context_attention = ContextAttention::kRing;
  schedule::Kind schedule = schedule::Kind::kOneFOneB;
  std::shared_ptr<const ListedSchedule> listed;  // for Kind::kFile
  int virtual_stages = 1;
  double greedy_held = 0;  // schedule generated for the predicted times, with at most this many
                           // micro-batches in flight; 0: none
  Recompute recompute = Recompute::kNone;
  double recompute_share =
      1;  // fraction of the blocks with kFull; the others use `recompute_others`
  Recompute recompute_others = Recompute::kElementwise;
  Offload offload = Offload::kNone;
  OffloadTo offload_to = OffloadTo::kHost;
  double activations_away = 0;  // fraction of the activations offloaded to host memory
  int64_t adapter_rank =
      0;  // rank of LoRA (Hu et al., 2021) on the matrices of the blocks; 0: full training
  double adapter_share = 1;         // trained parameters relative to adapters on every matrix
  bool adapters_decompose = false;  // DoRA (Liu et al., 2024)
  bool adapters_drop = false;       // adapters have dropout on their input
  double frozen_bytes = 2;          // per frozen weight of the blocks' linear layers: 2, or less if
                                    // quantized; other frozen weights have the compute type
  double reference_bytes =
      0;  // per parameter of a read-only reference model with the same plan; 0: none
  int in_memory_checkpoints = 0;  // copies of a rank's shard of the state in host memory
  Precision precision = Precision::kMixed16;
  double float8_share = 1;  // fraction of the blocks with 8-bit products under kFloat8
  Software software;
  std::vector<int64_t> split;  // blocks per stage; empty: determined by split_layers()

  /// Returns the micro-batches per step of one data-parallel rank, rounded up.
  int64_t micro_batches() const;
  /// Returns the tokens of a sequence.
  int64_t length(Stream stream) const { return stream == Stream::kTarget ? sequence : source; }
  /// Returns the tokens of a micro-batch on one context-parallel rank, of one stream and of all.
  double micro_tokens(Stream stream = Stream::kTarget) const;
  double all_micro_tokens() const;
  /// Returns the corresponding data.sequence_length: it is the source length, and a target has one
  /// more token, the decoder's start token.
  int64_t data_length() const { return source > 0 ? source : sequence; }
  void set_data_length(int64_t length);
  /// Returns the tokens of a step, of all streams.
  double step_tokens() const;
  /// Returns the bytes per element of the compute type.
  double compute_bytes() const { return precision == Precision::kFloat32 ? 4 : 2; }
  /// Returns the number of ranks that shard the states in ZeRO stages 1 to 3.
  double sharing() const;
  /// Returns the bytes per gradient, stored and communicated.
  double gradient_bytes() const;
  double reduce_bytes() const;
};

/// Returns true if a schedule file matches the number of pipeline ranks and has enough
/// micro-batches; true for other schedules.
bool schedule_goes(const Job& job);
/// Returns the number of stages of the pipeline: stages per rank times ranks.
int64_t stages_of(const Job& job);
/// Returns the pipeline rank of a stage.
int rank_of_stage(const Job& job, int64_t stage);
/// Returns the blocks of each stage, [stages]: equal if the layers are divisible; otherwise as even
/// as possible, counting the embedding and the head as one block each.
std::vector<int64_t> split_layers(int64_t layers, int64_t stages);
/// Returns the blocks of each stage, [stages_of(job)]: the job's split, otherwise the default split
/// of its software.
std::vector<int64_t> split_layers(const Job& job);
/// The same by kind: per stage, [stages_of(job)], and per pipeline rank, [pipeline].
std::vector<BlockCounts> stage_blocks(const Job& job);
std::vector<BlockCounts> rank_blocks(const Job& job);
/// Time of a stage with the layers from `first` up to `end`, including its embedding or head;
/// infinite if they do not fit.
using StageCost = std::function<double(int64_t stage, int64_t first, int64_t end)>;
/// Returns the split with the fastest slowest stage, by dynamic programming over stages and layers.
/// Every stage gets at least one block if there are enough. Empty if every split is infinite.
std::vector<int64_t> balance_layers(int64_t layers, int64_t stages, const StageCost& cost);

/// Returns the parameter counts of a model. Valid until the calling thread asks for another model.
const ParameterCounts& count_parameters(const model::ModelConfig& model);
/// Returns the parameters used per token: all except inactive experts.
double active_parameters(const model::ModelConfig& model);
/// Returns the adapter parameters of these blocks: rank times (inputs + outputs) per adapted
/// matrix.
double adapter_parameters(const Job& job, const BlockCounts& blocks);
/// Returns the weights of the blocks' linear layers.
double linear_parameters(const model::ModelConfig& model, const BlockCounts& blocks);
/// Returns the weights of the blocks' experts.
double expert_parameters(const model::ModelConfig& model, const BlockCounts& blocks);
/// Returns the bytes per weight in 8 bits, or in 4 bits with scales, which double quantization
/// quantizes too.
double packed_bytes(int64_t bits, bool double_quantization, int64_t block_size = 64);
/// Returns the trained parameters of a block of this kind: all, or its adapters.
double trained_parameters(const Job& job, BlockKind kind);
/// Returns the bytes of the largest gathered block on one tensor rank; frozen weights are gathered
/// quantized.
double gathered_block_bytes(const Job& job);
/// Returns true if a bias is added to attention scores, which fused kernels do not support.
bool has_score_bias(const model::ModelConfig& model);

/// Returns the floating-point operations of the model per step, forward and backward, without
/// recomputation: 6 per parameter of a product and token, plus full attention without the causal
/// mask (the convention of published MFU figures).
double model_flops(const Job& job);

}  // namespace lockstep::plan
