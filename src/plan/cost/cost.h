// Time of the parts of a model on a rank.
#pragma once

#include <array>
#include <cstddef>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// What compute is spent on.
enum class Kernels {
  kProducts,     // of the blocks' matrices
  kAttention,    // scores, softmax and their products with values
  kElementwise,  // norms, activations, dropout, residuals, the embedding; the launch of each kernel
  kContext,      // what ranks that share a sequence exchange, as far as it is not hidden
  kExperts,      // rows of tokens on their way to the ranks of their experts and back
  kHead,         // the head and the loss
  kSums,         // gradients added to those of the micro-batches before
};
inline constexpr size_t kKernelKinds = 7;
using KernelTimes = std::array<double, kKernelKinds>;  // seconds

/// Times of a micro-batch on one rank, in seconds. Tensor-parallel collectives are apart: `tensor`.
struct PassTimes {
  double forward = 0;
  double input = 0;   // the gradient of the input, recomputation included
  double weight = 0;  // the gradients of the weights
  double forward_tensor = 0, backward_tensor = 0;  // collectives that are not hidden
  KernelTimes kernels{};  // of forward, input and weight, recomputation left out
  double& of(Kernels kind) { return kernels[static_cast<size_t>(kind)]; }
  double all() const { return forward + input + weight + forward_tensor + backward_tensor; }
  PassTimes& operator+=(const PassTimes& other);
  PassTimes scaled(double factor) const;
};

/// One block of a kind; some blocks; the embedding; the head with the loss.
PassTimes block_seconds(
    const Job& job, const Cluster& cluster, const NodeGroup& node, BlockKind kind);
PassTimes blocks_seconds(
    const Job& job, const Cluster& cluster, const NodeGroup& node, const BlockCounts& blocks);
PassTimes embedding_seconds(const Job& job, const Cluster& cluster, const NodeGroup& node);
PassTimes head_seconds(const Job& job, const Cluster& cluster, const NodeGroup& node);

}  // namespace lockstep::plan
