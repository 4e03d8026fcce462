// Job: a model, its partitioning, and the settings of the training program. The cost model, the
// memory estimate, the simulator and the search read this description.
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
  kElementwise,  // norms and activations: cheap, and nearly half of what is kept
  kActivation,   // the output of the MLP's activation
  kAttention,    // the attention's scores alone (Korthikanti et al., 2022, "selective")
  kOperations,   // everything but every second matrix product ("selective op")
  kHalf,         // every second block
  kFull,         // every block: only its input is kept
};
std::string_view recompute_name(Recompute recompute);

/// Which numbers share a scale in 8-bit products.
enum class Scaling {
  kTensor,
  kRow,    // one scale a row: no faster than 16 bits
  kBlock,  // one for every 32 numbers or so
};

enum class Offload { kNone, kOptimizer, kAll };  // to host memory; kAll: parameters as well
std::string_view offload_name(Offload offload);
enum class OffloadTo { kHost, kNvme };

/// How ranks that share a sequence attend.
enum class ContextAttention {
  kRing,     // keys and values pass round (Liu et al., 2023)
  kUlysses,  // parts of the sequence are traded for heads (Jacobs et al., 2023)
};

/// What a training program does; facts about it, none of them fitted.
struct Software {
  bool fused_attention = true;      // scores never reach memory (FlashAttention)
  bool fused_elementwise = true;    // norms, activations, dropout and residuals in few kernels
  double attention_generation = 1;  // rate of its attention kernel over the device's fitted one
  bool flat_gather = false;         // units are gathered through one network port a rank
  bool overlap_data = true;         // gradients reduced, and units gathered, beside the compute
  double overlap_tensor = 0;  // share of tensor-parallel collectives that run beside their products
  Scaling scaling = Scaling::kTensor;
  // Of 8-bit products. Inputs are kept in 16 bits, and they and the weights rounded where they are
  // used:
  bool rounds_again = false;
  double rounding_bytes = 4;     // read and written of a number that is rounded
  bool waits_for_host = false;   // kernels of a recomputed block are launched one after the other
  bool early_libraries = false;  // matrix kernels of the first year of its device
  bool recompute_stops_early =
      false;                   // a block's last product is not recomputed: nothing reads its output
  bool reduces_whole = false;  // gradients are all-reduced whole, though the optimizer is sharded
  bool cuts_messages = true;   // tensor ranks send a part each of a pipeline message, though they
                               // do not share the sequence
  bool blocking_messages = false;        // a pipeline message holds up its sender
  bool waits_for_messages = false;       // the host waits for every pipeline message
  bool reduce_each_micro_batch = false;  // sharded gradients are reduced after every micro-batch
  // Under zero-bubble schedules a rank updates without the others, which is mended afterwards where
  // a norm was not finite or too large (Qi et al., 2023, section 4).
  bool lone_optimizer_steps = false;
  bool dropout = false;
  bool fused_softmax = true;         // scores in memory are scaled, masked and summed in one kernel
  bool fused_score_dropout = false;  // scores in memory are dropped by the kernel of their softmax
  bool offloads_activations =
      false;                  // with Offload::kAll, the blocks' inputs go to the host as well
  double weight_bytes = 2;    // of a parameter that is computed with
  double gradient_bytes = 2;  // of a gradient that is kept
  double sum_bytes =
      0;  // of one that micro-batches are summed in, kept and on the wire; 0: the same
  double optimizer_bytes = 12;     // of a parameter's master copy and moments
  double reduce_bytes = 2;         // of a gradient on the wire
  double logit_bytes = 6;          // kept of a logit from the forward to the backward pass
  double shared_logit_bytes = 0;   // the same where tensor ranks share the vocabulary; 0: the same
  double logit_limit = 1e30;       // the most bytes of logits that are made at once
  double head_gradient_bytes = 0;  // of the head's weights, made beside the logits
  double head_sum_bytes = 0;     // of the sum of the head's gradient where logits are made in runs
  double mask_bytes = 1;         // of an element that dropout saw, kept for the backward pass
  bool keeps_gated = true;       // a gate after its activation is kept beside the gate
  bool keeps_ungated = true;     // what an activation without a gate needs is not its output alone
  bool keeps_exchanged = false;  // what ranks of a context or tensor group gave is kept, not
                                 // exchanged anew in the backward pass
  bool fused_head = false;  // of these: the head's products by its own loops, in panels of rows
  bool lays_out = false;    // and one side of a weight's gradient is laid out anew
  double threads = 1;       // and a rank's threads
  double unit_bytes = 25 << 20;  // and neighbouring units of up to so many bytes are one buffer
  double update_copy = 0;        // and of a parameter, copied while its unit is updated
  double update_scratch = 0;     // and whatever else an update needs
  double update_bytes = 30;      // read and written by the optimizer for a parameter
  double sum_bytes_moved =
      0;  // read and written of a gradient to add it to the sum of the micro-batches
  double copy_bytes = 0;        // read and written of a gathered parameter, into and out of buffers
  double merge_bytes = 8;       // of an attention output, for each further step of a ring
  double bucket_bytes = 100e6;  // communication buffers of a rank
  bool reduces_in_place = false;  // gradients are reduced where they are summed: no buffers, but in
                                  // stage 2, where that is no place that stays
  double unit_parameters = 1e30;  // gathered at a time, at most (ZeRO stage 3)
  bool device_is_host = false;   // what is offloaded to host memory stays where it was, and what is
                                 // free serves tensors of any size: the fullest moment counts
  bool head_in_forward = false;  // the head's gradients are made with its loss
  bool balances_stages = false;  // layers are dealt to stages by what they and the head cost
  double tensor_copy = 0;        // bytes moved for each one that a tensor-parallel collective sums
  double sequence_copy = 0;      // the same where the sequence is split between such collectives
  bool ring_in_memory = false;   // ring attention is separate kernels, and its scores are in memory
  double context_bytes = 1.2e9;  // of the driver, the libraries and the communicators
  double fragmentation = 0.12;   // of activations and working memory, by the allocator
};

/// Of Kind::kFile.
struct ListedSchedule {
  std::string path;
  schedule::Schedule schedule;
};

struct Job {
  model::ModelConfig model;
  int64_t sequence = 1024;
  int64_t source = 0;        // tokens of the source that an encoder reads; 0: there is none
  int64_t global_batch = 1;  // sequences of a step
  int64_t micro_batch = 1;   // sequences of one micro-batch of one data-parallel rank
  mesh::Mesh mesh;
  int zero_stage = 0;
  int expert_ranks = 1;  // of data and context, that hold all experts between them
  int shard_ranks = 0;  // neighbours that share a state of which others hold replicas; 0: all share
  bool sequence_parallel = false;
  ContextAttention context_attention = ContextAttention::kRing;
  schedule::Kind schedule = schedule::Kind::kOneFOneB;
  std::shared_ptr<const ListedSchedule> listed;  // of Kind::kFile
  int virtual_stages = 1;
  double greedy_held =
      0;  // a schedule made for the predicted times, holding at most so many; 0: none
  Recompute recompute = Recompute::kNone;
  double recompute_share =
      1;  // of the blocks for which kFull holds; the others recompute as `recompute_others`
  Recompute recompute_others = Recompute::kElementwise;
  Offload offload = Offload::kNone;
  OffloadTo offload_to = OffloadTo::kHost;
  double activations_away = 0;  // share of the activations that wait in host memory
  int64_t adapter_rank =
      0;  // LoRA (Hu et al., 2021) beside the blocks' matrices; 0: all is trained
  double adapter_share = 1;         // of what adapters beside every matrix would train
  bool adapters_decompose = false;  // DoRA (Liu et al., 2024)
  bool adapters_drop = false;       // and they have dropout of what they read
  double frozen_bytes = 2;     // of a frozen weight of the blocks' linears: 2, or less where it is
                               // packed; what else is frozen has the type that is computed in
  double reference_bytes = 0;  // of a parameter of a second model that is only read, under the same
                               // plan; 0: none is held
  int in_memory_checkpoints = 0;  // copies of a rank's share of the state, in host memory
  Precision precision = Precision::kMixed16;
  double float8_share = 1;  // of the blocks: those whose products are in 8 bits under kFloat8
  Software software;
  std::vector<int64_t> split;  // blocks of each stage; empty: split_layers decides

  /// Micro-batches of a step on one data-parallel rank, rounded up.
  int64_t micro_batches() const;
  /// Tokens of a sequence.
  int64_t length(Stream stream) const { return stream == Stream::kTarget ? sequence : source; }
  /// Tokens of a micro-batch on one rank of the context axis, of one stream and of all.
  double micro_tokens(Stream stream = Stream::kTarget) const;
  double all_micro_tokens() const;
  /// The data.sequence_length that gives these: a source has as many, and a target one more, with
  /// which the decoder starts.
  int64_t data_length() const { return source > 0 ? source : sequence; }
  void set_data_length(int64_t length);
  /// Tokens of a step, of all streams.
  double step_tokens() const;
  /// Bytes of a number that is computed with.
  double compute_bytes() const { return precision == Precision::kFloat32 ? 4 : 2; }
  /// Ranks that share the states of stages 1 to 3.
  double sharing() const;
  /// Bytes of a gradient that is kept, and on the wire.
  double gradient_bytes() const;
  double reduce_bytes() const;
};

/// Whether a schedule from a file is of so many ranks, and of at least so many micro-batches; true
/// of all others.
bool schedule_goes(const Job& job);
/// Stages of the whole pipeline: those of a rank times the ranks.
int64_t stages_of(const Job& job);
/// The pipeline rank that a stage is on.
int rank_of_stage(const Job& job, int64_t stage);
/// Blocks of each stage, [stages]: equal where the layers divide; else as even as can be with the
/// embedding and the head counted as a block each.
std::vector<int64_t> split_layers(int64_t layers, int64_t stages);
/// Blocks of each stage, [stages_of(job)]: the job's own split where it has one, else as its
/// software deals them out.
std::vector<int64_t> split_layers(const Job& job);
/// The same by kind: of each stage, [stages_of(job)], and of each pipeline rank, [pipeline].
std::vector<BlockCounts> stage_blocks(const Job& job);
std::vector<BlockCounts> rank_blocks(const Job& job);
/// What a stage takes for the layers from `first` up to `end`, and whatever else it holds; endless
/// where it cannot hold them.
using StageCost = std::function<double(int64_t stage, int64_t first, int64_t end)>;
/// The split whose slowest stage is the fastest, by dynamic programming over stages and layers.
/// Every stage gets a block at least where there are enough. Empty where every split is endless.
std::vector<int64_t> balance_layers(int64_t layers, int64_t stages, const StageCost& cost);

/// Valid until the calling thread asks of another model.
const ParameterCounts& count_parameters(const model::ModelConfig& model);
/// Those that a token goes through: all but the experts that it does not.
double active_parameters(const model::ModelConfig& model);
/// Of the adapters of these blocks: rank times in and out of each matrix that has one.
double adapter_parameters(const Job& job, const BlockCounts& blocks);
/// Weights of the blocks' linears.
double linear_parameters(const model::ModelConfig& model, const BlockCounts& blocks);
/// Weights of the blocks' experts.
double expert_parameters(const model::ModelConfig& model, const BlockCounts& blocks);
/// Bytes of a weight in 8 bits, or in 4 with their scales, which double quantization packs too.
double packed_bytes(int64_t bits, bool double_quantization, int64_t block_size = 64);
/// Of a block of this kind, what is trained: all, or its adapters.
double trained_parameters(const Job& job, BlockKind kind);
/// Bytes of the largest block as it is gathered, frozen weights as they are packed, of one tensor
/// rank.
double gathered_block_bytes(const Job& job);
/// Whether a bias is added to the scores of attention, which fused kernels have no place for.
bool has_score_bias(const model::ModelConfig& model);

/// Floating-point operations of the model for a step, forward and backward, recomputation not
/// counted: 6 for each parameter of a product and token, and the attention's full square (the
/// convention of published MFU figures).
double model_flops(const Job& job);

}  // namespace lockstep::plan
