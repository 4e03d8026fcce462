// How long the operations of a model take on a device: a roofline whose efficiency depends on the
// size.
#pragma once

#include <array>
#include <cstddef>

#include "plan/job.h"
#include "plan/machines/cluster.h"

namespace lockstep::plan {

/// [m, k] × [k, n], `count` of them at a time, in 32, 16 or 8 bits. Tiles are counted in waves over
/// the processors, each wave has its first loads and last stores besides, sizes that are no
/// multiple of 64 cost, and memory may decide.
double product_seconds(
    const Physics& physics,
    const Device& device,
    Precision precision,
    double count,
    double m,
    double n,
    double k);

/// The rate of a device over that of its chip without a limit of power.
double power_share(const Physics& physics, const Device& device);

/// What kernels of this type reach.
const Efficiency& efficiency_of(const Device& device, Precision precision);

/// An element-wise kernel that moves `bytes`.
double memory_seconds(
    const Device& device, double bytes, Precision precision = Precision::kMixed16);
/// A plain copy that reads and writes `bytes` in all.
double copy_seconds(const Device& device, double bytes);

/// What compute is spent on.
enum class Kernels {
  kProducts,     // of the blocks' matrices
  kAttention,    // scores, softmax and their products with values
  kElementwise,  // norms, activations, dropout, residuals, the embedding; the launch of each kernel
  kContext,      // what ranks that share a sequence exchange, as far as it is not hidden
  kHead,         // the head and the loss
  kSums,         // gradients added to those of the micro-batches before
};
inline constexpr size_t kKernelKinds = 6;
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
