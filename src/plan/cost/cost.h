// Estimated times of blocks, embedding and head on one rank.
#pragma once

#include <array>
#include <cstddef>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Kinds of kernels used to break down compute time.
enum class Kernels {
  kProducts,     // matrix products of the blocks
  kAttention,    // scores, softmax and their products with values
  kElementwise,  // norms, activations, dropout, residuals, the embedding; kernel launches
  kContext,      // exposed communication of context-parallel ranks
  kExperts,      // all-to-all of tokens between expert-parallel ranks
  kHead,         // head and loss
  kSums,         // accumulation of gradients over micro-batches
};
inline constexpr size_t kKernelKinds = 7;
using KernelTimes = std::array<double, kKernelKinds>;  // seconds

/// Times of a micro-batch on one rank, in seconds. Tensor-parallel collectives are only in
/// forward_tensor and backward_tensor.
struct PassTimes {
  double forward = 0;
  double input = 0;                                // input gradient, including recomputation
  double weight = 0;                               // weight gradients
  double forward_tensor = 0, backward_tensor = 0;  // exposed collectives
  KernelTimes kernels{};  // breakdown of forward, input and weight, without recomputation
  double& of(Kernels kind) { return kernels[static_cast<size_t>(kind)]; }
  double all() const { return forward + input + weight + forward_tensor + backward_tensor; }
  PassTimes& operator+=(const PassTimes& other);
  PassTimes scaled(double factor) const;
};

/// Return the times of one block, of several blocks, of the embedding, and of the head with the
/// loss.
PassTimes block_seconds(
    const Job& job, const Cluster& cluster, const NodeGroup& node, BlockKind kind);
PassTimes blocks_seconds(
    const Job& job, const Cluster& cluster, const NodeGroup& node, const BlockCounts& blocks);
PassTimes embedding_seconds(const Job& job, const Cluster& cluster, const NodeGroup& node);
PassTimes head_seconds(const Job& job, const Cluster& cluster, const NodeGroup& node);

}  // namespace lockstep::plan
