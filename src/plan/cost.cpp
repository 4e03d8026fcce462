#include "plan/cost.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::plan {

namespace {

constexpr double kHalf = 2;  // bytes of a 16-bit number

struct Tile {
  double rows, columns;
  double share;  // of the rate of the largest tile: smaller ones read more for each product
};
constexpr std::array<Tile, 4> kTiles{
    {{256, 128, 1.0}, {128, 128, 0.93}, {128, 64, 0.78}, {64, 64, 0.55}}};

double align_share(const Physics& physics, double n, double k) {
  const auto odd = [](double size) {
    const auto whole = static_cast<int64_t>(size);
    int64_t power = 1;
    while (power < 64 && whole % (power * 2) == 0) {
      power *= 2;
    }
    return power;
  };
  const int64_t power = std::min(odd(n), odd(k));
  if (power >= 64) {
    return 1;
  }
  // 8 numbers are 16 bytes, the least that matrix units load; below that they are hardly used.
  const double steps = power >= 8 ? std::log2(64.0 / static_cast<double>(power)) / 3 : 1;
  return (1 - (1 - physics.misaligned) * steps) * (power >= 8 ? 1 : 0.5);
}

// What the sizes of a block are on one rank of the tensor axis.
struct BlockShape {
  double tokens, hidden, queries, keys, width, heads, head_dim, sequence;
  double matrices;  // of the MLP that widen
};

BlockShape shape_of(const Job& job) {
  const model::ModelConfig& model = job.model;
  const double tensor = job.mesh.tensor;
  BlockShape shape{};
  shape.tokens = job.micro_tokens();
  shape.hidden = static_cast<double>(model.hidden_size);
  shape.heads = std::ceil(static_cast<double>(model.heads) / tensor);
  shape.head_dim = static_cast<double>(model.head_dim);
  shape.queries = shape.heads * shape.head_dim;
  shape.keys = std::ceil(static_cast<double>(model.kv_heads) / tensor) * shape.head_dim;
  shape.width = std::ceil(static_cast<double>(model.intermediate_size) / tensor);
  shape.sequence = static_cast<double>(job.sequence);
  shape.matrices = gated(model) ? 2 : 1;
  return shape;
}

// The products of a block, forward. `linear`: those with weights.
struct BlockProducts {
  double linear = 0;
  double attention = 0;
};

BlockProducts forward_products(
    const Job& job, const Physics& physics, const Device& device, const BlockShape& s) {
  const auto product = [&](double n, double k) {
    const double early = job.software.early_libraries ? physics.early_libraries : 1;
    return product_seconds(physics, device, job.precision, 1, s.tokens, n, k) / early;
  };
  BlockProducts times;
  times.linear = product(s.queries + 2 * s.keys, s.hidden) + product(s.hidden, s.queries) +
                 product(s.matrices * s.width, s.hidden) + product(s.hidden, s.width);
  const double peak = job.precision == Precision::kFloat32 ? device.flops32 : device.flops16;
  if (job.software.fused_attention) {
    // Only the visible half is computed; short sequences leave processors idle.
    const double flops = 2 * s.tokens * s.sequence * s.queries;
    const double fill = s.sequence / (s.sequence + 512);
    times.attention =
        flops / (peak * device.efficiency.attention * job.software.attention_generation * fill);
  } else {
    const double batch = s.heads * s.tokens / s.sequence;
    const Precision precision =
        job.precision == Precision::kFloat8 ? Precision::kMixed16 : job.precision;
    times.attention =
        product_seconds(physics, device, precision, batch, s.sequence, s.sequence, s.head_dim) +
        product_seconds(physics, device, precision, batch, s.sequence, s.head_dim, s.sequence);
  }
  return times;
}

// Bytes that the element-wise kernels of a block move, forward. Numbers read and written for each
// element: a fused norm with its residual reads two and writes two; eager kernels come back to
// memory for every step.
double elementwise_bytes(const Job& job, const BlockShape& s) {
  const bool fused = job.software.fused_elementwise;
  const double spread = job.sequence_parallel ? job.mesh.tensor : 1;
  const double wide = job.precision == Precision::kFloat32 ? 2 : 1;
  double of_hidden = fused ? 8 : 14;
  of_hidden += job.software.dropout ? (fused ? 1 : 5) : 0;
  const double of_queries = fused ? 2 : 5;
  const double of_width = gated(job.model) ? (fused ? 3 : 5) : (fused ? 2 : 4);
  double bytes =
      s.tokens * kHalf * wide *
      (of_hidden * s.hidden / spread + of_queries * (s.queries + 2 * s.keys) + of_width * s.width);
  if (!job.software.fused_attention) {
    // Scale, mask and softmax in one kernel, dropout in another: read and write each, and the mask.
    const double per_score = job.software.dropout ? 9 : 4;
    bytes += s.heads * s.tokens * s.sequence * per_score * wide;
  }
  if (job.precision == Precision::kFloat8) {
    bytes += s.tokens * 4 *
             (2 * s.hidden + s.queries + s.width);  // inputs are read, scaled and written in 8 bits
  }
  return bytes;
}

double attention_backward(const Job& job) {
  return job.software.fused_attention ? 2.5 * 1.15
                                      : 2;  // five products instead of two, in one slower kernel
}

double kernels(const Job& job) {
  return job.software.fused_elementwise ? 12 : 26;  // of a block, forward
}

CollectiveGroup tensor_group(const Job& job, const NodeGroup& node) {
  const double members = job.mesh.tensor;
  return {members, std::min<double>(members, node.devices_per_node)};
}

// Ring attention: keys and values pass round the context axis; hidden behind the attention as far
// as it lasts.
double context_seconds(
    const Job& job,
    const Cluster& cluster,
    const NodeGroup& node,
    const BlockShape& s,
    double attention) {
  if (job.mesh.context == 1) {
    return 0;
  }
  const double bytes = s.tokens * 2 * s.keys * kHalf;
  const bool within = job.mesh.tensor * job.mesh.context <= node.devices_per_node;
  const double wire = (job.mesh.context - 1) * message_seconds(cluster, node, within, bytes);
  return std::max(0.0, wire - attention);
}

}  // namespace

double product_seconds(
    const Physics& physics,
    const Device& device,
    Precision precision,
    double count,
    double m,
    double n,
    double k) {
  const bool eight = precision == Precision::kFloat8 && device.flops8 > 0;
  double rate = precision == Precision::kFloat32 ? device.flops32 : device.flops16;
  rate *= eight ? 1 : device.efficiency.matrix16;
  if (eight) {
    rate = device.flops8 * device.efficiency.matrix8;
  }
  rate *= k / (k + physics.product_fill) * align_share(physics, n, k);
  const double processors = device.processors;
  double compute = 1e30;
  for (const Tile& tile : kTiles) {
    const double tiles = count * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double waves = std::ceil(tiles / processors);
    const double flops = waves * processors * tile.rows * tile.columns * k * 2;
    compute = std::min(compute, flops / (rate * tile.share));
  }
  const double width = precision == Precision::kFloat32 ? 4 : kHalf;
  const double bytes = count * width * (m * k + k * n + m * n);
  return std::max(compute, memory_seconds(device, bytes)) + physics.kernel_seconds;
}

double memory_seconds(const Device& device, double bytes) {
  return bytes / (device.memory_bandwidth * device.efficiency.memory);
}

PassTimes& PassTimes::operator+=(const PassTimes& other) {
  forward += other.forward;
  input += other.input;
  weight += other.weight;
  forward_tensor += other.forward_tensor;
  backward_tensor += other.backward_tensor;
  return *this;
}

PassTimes PassTimes::scaled(double factor) const {
  return {
      forward * factor,
      input * factor,
      weight * factor,
      forward_tensor * factor,
      backward_tensor * factor};
}

PassTimes block_seconds(const Job& job, const Cluster& cluster, const NodeGroup& node) {
  const Device& device = node.device;
  const Physics& physics = cluster.physics;
  const BlockShape shape = shape_of(job);
  const BlockProducts products = forward_products(job, physics, device, shape);
  const double memory = memory_seconds(device, elementwise_bytes(job, shape));
  const double launch = kernels(job) * physics.kernel_seconds;
  PassTimes times;
  times.forward = products.linear + products.attention + memory + launch;
  times.input =
      products.linear + products.attention * attention_backward(job) + 1.2 * memory + 2 * launch;
  times.weight = products.linear;
  const double ring = context_seconds(job, cluster, node, shape, products.attention);
  times.forward += ring;
  times.input += 2 * ring;

  const double bytes = shape.tokens * shape.hidden * kHalf;
  double reduce = all_reduce_seconds(cluster, node, tensor_group(job, node), bytes);
  if (job.software.overlap_tensor) {
    reduce *= 0.35;  // all but the first and last piece of a product that is cut in pieces
  }
  times.forward_tensor = 2 * reduce;
  times.backward_tensor = 2 * reduce;
  switch (job.recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kElementwise:
      times.input += 0.6 * memory;
      break;
    case Recompute::kAttention:
      times.input += products.attention + 0.4 * memory;
      break;
    case Recompute::kOperations:
      times.input += products.linear / 2 + memory;
      times.backward_tensor += reduce;
      break;
    case Recompute::kHalf:
      times.input += times.forward / 2;
      times.backward_tensor += reduce;
      break;
    case Recompute::kFull:
      times.input += times.forward * job.recompute_share + 0.6 * memory * (1 - job.recompute_share);
      times.backward_tensor += 2 * reduce * job.recompute_share;
      times.input += job.software.waits_for_host ? physics.host_seconds : 0;
      break;
  }
  return times;
}

PassTimes embedding_seconds(const Job& job, const Cluster& cluster, const NodeGroup& node) {
  const double bytes = job.micro_tokens() * static_cast<double>(job.model.hidden_size) * kHalf;
  PassTimes times;
  times.forward = memory_seconds(node.device, 2 * bytes);
  times.weight = memory_seconds(node.device, 4 * bytes);
  times.forward_tensor = all_reduce_seconds(cluster, node, tensor_group(job, node), bytes);
  return times;
}

PassTimes head_seconds(const Job& job, const Cluster& cluster, const NodeGroup& node) {
  const double tokens = job.micro_tokens();
  const auto hidden = static_cast<double>(job.model.hidden_size);
  const double vocabulary =
      std::ceil(static_cast<double>(job.model.vocab_size) / 64 / job.mesh.tensor) * 64;
  const Precision precision =
      job.precision == Precision::kFloat8 ? Precision::kMixed16 : job.precision;
  const double product =
      product_seconds(cluster.physics, node.device, precision, 1, tokens, vocabulary, hidden);
  // Logits are widened to 32 bits for the loss; fused kernels read them once each way.
  const double bytes = tokens * vocabulary;
  const bool fused = job.software.fused_elementwise;
  PassTimes times;
  times.forward = product + memory_seconds(node.device, bytes * (fused ? 4 : 16));
  times.input = product + memory_seconds(node.device, bytes * (fused ? 4 : 18));
  times.weight = product;
  times.backward_tensor =
      all_reduce_seconds(cluster, node, tensor_group(job, node), tokens * hidden * kHalf);
  return times;
}

}  // namespace lockstep::plan
