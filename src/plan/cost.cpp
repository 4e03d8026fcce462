#include "plan/cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "plan/block_shape.h"

namespace lockstep::plan {

namespace {

constexpr double kHalf = 2;          // bytes of a 16-bit number
constexpr double kRingBackward = 2;  // of ring attention in memory, over its forward pass

struct Tile {
  double rows, columns;
  double share;  // of the rate of the largest tile: smaller ones read more for each product
};
constexpr std::array<Tile, 4> kTiles{
    {{256, 128, 1.0}, {128, 128, 0.93}, {128, 64, 0.78}, {64, 64, 0.55}}};

// 8 numbers of 16 bits are 16 bytes, the least that matrix units load.
constexpr int64_t kLeastAligned = 8;
constexpr int64_t kWellAligned = 64;

// The largest power of two, up to 64, that divides both sizes.
int64_t alignment(double n, double k) {
  const auto of_size = [](double size) {
    const auto whole = static_cast<int64_t>(size);
    int64_t power = 1;
    while (power < kWellAligned && whole % (power * 2) == 0) {
      power *= 2;
    }
    return power;
  };
  return std::min(of_size(n), of_size(k));
}

// The rate of a product's operations, all processors busy.
double product_rate(
    const Physics& physics, const Device& device, Precision precision, double n, double k) {
  const double power = power_share(physics, device);
  if (precision == Precision::kFloat32) {
    return device.flops32 * device.efficiency.matrix16 * power;
  }
  const int64_t aligned = alignment(n, k);
  if (aligned < kLeastAligned) {
    return device.flops32 * physics.unaligned * power;
  }
  const double steps = std::log2(static_cast<double>(kWellAligned / aligned)) / 3;
  const double share = 1 - (1 - physics.misaligned) * steps;
  const bool eight = precision == Precision::kFloat8 && device.flops8 > 0;
  return (eight ? device.flops8 * device.efficiency.matrix8
                : device.flops16 * device.efficiency.matrix16) *
         share * power;
}

// 8-bit products with many scales, over those with one for the whole tensor.
double scaled_share(const Job& job, const Physics& physics, const Device& device) {
  if (job.precision != Precision::kFloat8 || device.flops8 <= 0) {
    return 1;
  }
  switch (job.software.scaling) {
    case Scaling::kTensor:
      return 1;
    case Scaling::kRow:
      return device.flops16 * device.efficiency.matrix16 /
             (device.flops8 * device.efficiency.matrix8);
    case Scaling::kBlock:
      break;
  }
  return physics.block_scaled;
}

// How attention is computed.
enum class Attention {
  kFused,   // scores never reach memory
  kScores,  // scores are in memory
  kRing,    // they are so block by block, as keys and values come round
};

Attention attention_of(const Job& job) {
  if (job.mesh.context > 1 && job.software.ring_in_memory &&
      job.context_attention == ContextAttention::kRing) {
    return Attention::kRing;
  }
  return job.software.fused_attention && !has_score_bias(job.model) ? Attention::kFused
                                                                    : Attention::kScores;
}

// Whether a ring's time is by the machine's own rates, which hold for what passes by within it.
bool ring_is_measured(const Job& job, const Device& device) {
  return device.measured && !has_score_bias(job.model);
}

struct ElementwiseBytes {
  double activation = 0;  // inside the MLP
  double scores = 0;      // those in memory
  double others = 0;
};

double elementwise_seconds(
    const Device& device, const ElementwiseBytes& bytes, Precision precision) {
  const double activation = memory_seconds(device, bytes.activation, precision) /
                            efficiency_of(device, precision).activation;
  // What was measured of kernels is of those that compute more for a number than sums, masks and
  // softmax of scores do: these take the memory's own rate.
  return (device.measured
              ? memory_seconds(device, bytes.others, precision) + copy_seconds(device, bytes.scores)
              : memory_seconds(device, bytes.others + bytes.scores, precision)) +
         activation;
}

// The forward pass. Each rank has two parts of the sequence, one from each end, and computes the
// pairs of parts that see each other; those on the diagonal whole. With a bias of the scores it
// computes all pairs.
double ring_attention_seconds(
    const Job& job,
    const Physics& physics,
    const Device& device,
    const BlockShape& s,
    const AttentionShape& a) {
  const double ranks = job.mesh.context;
  const double sequences = static_cast<double>(job.micro_batch);
  if (ring_is_measured(job, device)) {
    const RingRates& rates = job.precision == Precision::kFloat32 ? device.ring32 : device.ring16;
    const double passing = sequences * s.heads * a.keys_length;
    return passing * (a.queries_length / ranks * a.seen * rates.score + s.head_dim * rates.number) /
           (1 + kRingBackward);
  }
  const double queries = a.queries_length / (2 * ranks);
  const double keys = a.keys_length / (2 * ranks);
  const double pairs = a.seen == 1 || has_score_bias(job.model) ? 4 * ranks : 2 * ranks + 1;
  const double scores = sequences * s.heads * pairs * queries * keys;
  // Read and written of a score by the product, the scale, the mask, the largest, the exponential,
  // the sum and the second product, each a kernel, in float32.
  constexpr double kScoreBytes = 52;
  const double products =
      product_seconds(
          physics, device, job.precision, sequences * s.heads, pairs * queries, keys, s.head_dim) +
      product_seconds(
          physics, device, job.precision, sequences * s.heads, pairs * queries, s.head_dim, keys);
  return products + elementwise_seconds(device, {.scores = scores * kScoreBytes}, job.precision);
}

// The products of an attention without weights, forward.
double attention_seconds(
    const Job& job,
    const Physics& physics,
    const Device& device,
    const BlockShape& s,
    const AttentionShape& a) {
  switch (attention_of(job)) {
    case Attention::kRing:
      return ring_attention_seconds(job, physics, device, s, a);
    case Attention::kFused: {
      // Only what is seen is computed; short sequences leave processors idle.
      const double peak = job.precision == Precision::kFloat32 ? device.flops32 : device.flops16;
      const double flops = 4 * a.seen * s.tokens * a.keys_length * s.queries;
      const double fill = device.measured ? 1 : a.keys_length / (a.keys_length + 512);
      return flops /
             (peak * efficiency_of(device, job.precision).attention * device.attention_rate *
              job.software.attention_generation * fill * power_share(physics, device));
    }
    case Attention::kScores:
      break;
  }
  const double batch = s.heads * s.tokens / a.queries_length;
  const Precision precision =
      job.precision == Precision::kFloat8 ? Precision::kMixed16 : job.precision;
  return product_seconds(
             physics, device, precision, batch, a.queries_length, a.keys_length, s.head_dim) +
         product_seconds(
             physics, device, precision, batch, a.queries_length, s.head_dim, a.keys_length);
}

// The products of a block: those with weights forward, of the input's and of the weights' gradient;
// the attention's forward.
struct BlockProducts {
  double forward = 0, input = 0, weight = 0;
  double attention = 0;
  double last = 0;  // of `forward`: the block's last product
};

BlockProducts block_products(
    const Job& job, const Physics& physics, const Device& device, const BlockShape& s) {
  const auto product = [&](double m, double n, double k) {
    const double share = (job.software.early_libraries ? physics.early_libraries : 1) *
                         scaled_share(job, physics, device);
    return product_seconds(physics, device, job.precision, 1, m, n, k) / share;
  };
  BlockProducts times;
  const auto add = [&](double tokens, double out, double in) {
    times.last = product(tokens, out, in);
    times.forward += times.last;
    times.input += product(tokens, in, out);
    times.weight += job.adapter_rank > 0 ? 0 : product(out, in, tokens);
    if (job.adapter_rank > 0) {
      const auto rank = static_cast<double>(job.adapter_rank);
      times.forward += product(tokens, rank, in) + product(tokens, out, rank);
      times.input += product(tokens, rank, out) + product(tokens, in, rank);
      times.weight += product(rank, in, tokens) + product(out, rank, tokens);
    }
  };
  for (size_t i = 0; i < s.attentions; ++i) {
    const AttentionShape& attention = s.attention[i];
    add(s.tokens, s.queries + (attention.own ? 2 * s.keys : 0), s.hidden);
    if (!attention.own) {
      add(attention.key_tokens, 2 * s.keys, s.hidden);
    }
    add(s.tokens, s.hidden, s.queries);
    times.attention += attention_seconds(job, physics, device, s, attention);
  }
  add(s.tokens, s.matrices * s.width, s.hidden);
  add(s.tokens, s.hidden, s.width);
  return times;
}

// Read and written of a score by the kernels around its products.
double score_bytes(const Job& job) {
  const double wide = job.precision == Precision::kFloat32 ? 2 : 1;
  if (!has_score_bias(job.model)) {
    // Scale, mask and softmax in one kernel or a kernel each, dropout in another: read and write
    // each, and the masks.
    const double softmax = job.software.fused_softmax ? 4 : 13;
    const double dropout = job.software.fused_score_dropout ? 3 : 5;
    return (softmax + (job.software.dropout ? dropout : 0)) * wide;
  }
  // Bias, a copy that is masked, and softmax, each a kernel in float32; 16 bits are widened before
  // and narrowed after; dropout.
  constexpr double kWideKernels = 4 * 8;
  return kWideKernels + (wide == 1 ? 6 + 6 : 0) + (job.software.dropout ? 2 * kHalf * wide : 0);
}

// Bytes that the element-wise kernels of a block move, forward. Numbers read and written for each
// element: a fused norm with its residual reads two and writes two; eager kernels come back to
// memory for every step.
ElementwiseBytes elementwise_bytes(const Job& job, const BlockShape& s) {
  const bool fused = job.software.fused_elementwise;
  const double spread = job.sequence_parallel ? job.mesh.tensor : 1;
  const double wide = job.precision == Precision::kFloat32 ? 2 : 1;
  // A norm of root mean squares is five kernels in float32 where it is not fused.
  double of_hidden = fused ? 8 : (gated(job.model) ? 42 : 14);
  of_hidden += job.software.dropout ? (fused ? 1 : 5) : 0;
  of_hidden *= (s.sublayers + (s.ends_stream ? 1 : 0)) / 2;
  // Rotary positions are turned in float32, and grouped keys and values repeated.
  const double of_queries =
      !fused ? (gated(job.model) ? 12 : 5) : (attention_of(job) == Attention::kScores ? 4 : 2);
  const double of_width = gated(job.model) ? (fused ? 3 : 5) : (fused ? 2 : 4);
  const double heads =
      static_cast<double>(s.attentions) * s.tokens * s.queries + 2 * s.key_tokens() * s.keys;
  ElementwiseBytes bytes;
  bytes.activation = kHalf * wide * s.tokens * of_width * s.width;
  bytes.others = kHalf * wide * (s.tokens * of_hidden * s.hidden / spread + of_queries * heads);
  bytes.scores = attention_of(job) == Attention::kScores ? s.scores() * score_bytes(job) : 0;
  if (job.precision == Precision::kFloat8) {
    // Inputs are read, scaled and written in 8 bits.
    bytes.others += s.tokens * 4 * (2 * s.hidden + s.queries + s.width);
  }
  return bytes;
}

double attention_backward(const Job& job) {
  switch (attention_of(job)) {
    case Attention::kRing:
      return kRingBackward;
    case Attention::kFused:
      return 2.5 * 1.15;  // five products instead of two, in one slower kernel
    case Attention::kScores:
      break;
  }
  return 2;
}

// Of a block, forward.
double kernels(const Job& job, const BlockShape& s) {
  const double of_scores = has_score_bias(job.model) ? 8 * static_cast<double>(s.attentions) : 0;
  return (job.software.fused_elementwise ? 6 : 13) * s.sublayers + of_scores;
}

CollectiveGroup tensor_group(const Job& job, const NodeGroup& node) {
  const double members = job.mesh.tensor;
  return {members, std::min<double>(members, node.devices_per_node)};
}

// Summing so many numbers over the tensor axis.
double tensor_reduce_seconds(
    const Job& job, const Cluster& cluster, const NodeGroup& node, double numbers) {
  if (job.mesh.tensor == 1) {
    return 0;
  }
  const double bytes = numbers * job.compute_bytes();
  return all_reduce_seconds(cluster, node, tensor_group(job, node), bytes) +
         copy_seconds(
             node.device,
             bytes *
                 (job.sequence_parallel ? job.software.sequence_copy : job.software.tensor_copy));
}

// What the context axis costs a forward pass of an attention that takes so long. Ring attention:
// keys and values pass round, hidden behind the attention as far as it lasts; each step's output is
// merged into the last one's. Else queries, keys, values and the output are traded, one part to
// each.
double context_seconds(
    const Job& job,
    const Cluster& cluster,
    const NodeGroup& node,
    const BlockShape& s,
    const AttentionShape& a,
    double attention) {
  const double ranks = job.mesh.context;
  const double width = job.compute_bytes();
  const bool within = job.mesh.tensor * job.mesh.context <= node.devices_per_node;
  if (job.context_attention == ContextAttention::kUlysses) {
    const double traded = 2 * (s.tokens * s.queries + a.key_tokens * s.keys) * width;
    return 4 * message_seconds(cluster, node, within, traded / 4 * (ranks - 1) / ranks) +
           copy_seconds(node.device, 2 * 2 * traded);
  }
  const double bytes = a.key_tokens * 2 * s.keys * width;
  const bool measured = within && attention_of(job) == Attention::kRing &&
                        ring_is_measured(job, node.device);  // and with it the way
  const double wire = measured ? 0 : (ranks - 1) * message_seconds(cluster, node, within, bytes);
  const bool merges = attention_of(job) != Attention::kRing;
  const double merge = memory_seconds(
      node.device, (ranks - 1) * s.tokens * s.queries * (merges ? job.software.merge_bytes : 0));
  return (job.software.overlap_data ? std::max(0.0, wire - attention) : wire) + merge;
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
  if (device.measured) {
    const bool wide = precision == Precision::kFloat32;
    const ShortSides& sides = wide ? device.short32 : device.short16;
    const double peak = wide ? device.flops32 : device.flops16;
    return count * 2 * m * n * k / peak *
               (1 + sides.rows / m + sides.columns / n + sides.inner / k) +
           device.kernel_seconds;
  }
  const double rate = product_rate(physics, device, precision, n, k);
  const double processors = device.processors;
  double compute = 1e30;
  for (const Tile& tile : kTiles) {
    const double tiles = count * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    // Of the last wave's idle processors, those are lost that no splitting of tiles keeps busy.
    const double even = std::max(1.0, tiles / processors);
    const double waves = even + (std::ceil(tiles / processors) - even) * physics.wave_waste;
    const double flops = processors * tile.rows * tile.columns * k * 2;
    compute = std::min(compute, waves * (flops / (rate * tile.share) + physics.tile_seconds));
  }
  const double width = precision == Precision::kFloat32 ? 4 : kHalf;
  const double bytes = count * width * (m * k + k * n + m * n);
  return std::max(compute, memory_seconds(device, bytes)) + physics.kernel_seconds;
}

double power_share(const Physics& physics, const Device& device) {
  return device.chip_watts > device.watts
             ? std::pow(device.watts / device.chip_watts, physics.power_exponent)
             : 1;
}

const Efficiency& efficiency_of(const Device& device, Precision precision) {
  return device.measured && precision == Precision::kFloat32 ? device.efficiency32
                                                             : device.efficiency;
}

double memory_seconds(const Device& device, double bytes, Precision precision) {
  return bytes / (device.memory_bandwidth * efficiency_of(device, precision).memory);
}

double copy_seconds(const Device& device, double bytes) {
  return device.measured ? bytes / device.memory_bandwidth : memory_seconds(device, bytes);
}

PassTimes& PassTimes::operator+=(const PassTimes& other) {
  forward += other.forward;
  input += other.input;
  weight += other.weight;
  forward_tensor += other.forward_tensor;
  backward_tensor += other.backward_tensor;
  for (size_t kind = 0; kind < kKernelKinds; ++kind) {
    kernels[kind] += other.kernels[kind];
  }
  return *this;
}

PassTimes PassTimes::scaled(double factor) const {
  PassTimes result = *this;
  result.forward *= factor;
  result.input *= factor;
  result.weight *= factor;
  result.forward_tensor *= factor;
  result.backward_tensor *= factor;
  for (double& seconds : result.kernels) {
    seconds *= factor;
  }
  return result;
}

PassTimes block_seconds(
    const Job& job, const Cluster& cluster, const NodeGroup& node, BlockKind kind) {
  const Device& device = node.device;
  const Physics& physics = cluster.physics;
  const BlockShape shape = shape_of(job, kind);
  const BlockProducts products = block_products(job, physics, device, shape);
  const double memory = elementwise_seconds(device, elementwise_bytes(job, shape), job.precision);
  const double launch =
      kernels(job, shape) * (device.measured ? device.kernel_seconds : physics.kernel_seconds);
  PassTimes times;
  times.forward = products.forward + products.attention + memory + launch;
  times.input =
      products.input + products.attention * attention_backward(job) + 1.2 * memory + 2 * launch;
  times.weight = products.weight;
  if (job.software.dropout && device.measured) {
    // Drawn in the forward pass and again in the backward: of the scores that fused attention sees,
    // or of all, and of what is added to the residual.
    const bool fused = attention_of(job) == Attention::kFused;
    const double draws = shape.scores() * (fused ? 0.5 : 1) +
                         shape.tokens * (shape.sublayers * shape.hidden +
                                         (job.model.mlp_dropout > 0 ? shape.width : 0));
    times.forward += draws * device.dropout_seconds;
    times.input += draws * device.dropout_seconds;
  }
  const auto rest = [&] {
    return times.forward + times.input + times.weight -
           std::accumulate(times.kernels.begin(), times.kernels.end(), 0.0);
  };
  times.of(Kernels::kProducts) = products.forward + products.input + products.weight;
  times.of(Kernels::kAttention) = products.attention * (1 + attention_backward(job));
  times.of(Kernels::kElementwise) = rest();
  if (job.mesh.context > 1) {
    double ring = 0;
    for (size_t i = 0; i < shape.attentions; ++i) {
      const AttentionShape& attention = shape.attention[i];
      ring += context_seconds(
          job,
          cluster,
          node,
          shape,
          attention,
          attention_seconds(job, physics, device, shape, attention));
    }
    times.forward += ring + node.wait_seconds(times.forward);
    times.input += 2 * ring + node.wait_seconds(times.input + times.weight);
    times.of(Kernels::kContext) = rest();
  }

  double reduce = tensor_reduce_seconds(job, cluster, node, shape.tokens * shape.hidden);
  reduce *= 1 - (1 - physics.tensor_exposed) * job.software.overlap_tensor;
  // In each sublayer all wait for the slowest, each way. The gradient of what all decoder blocks
  // read is summed once, where the encoder ends.
  const auto waits = [&](double computed) {
    return job.mesh.tensor > 1 ? shape.sublayers * node.wait_seconds(computed / shape.sublayers)
                               : 0;
  };
  times.forward_tensor = shape.sublayers * reduce + waits(times.forward);
  times.backward_tensor =
      (shape.sublayers + (shape.ends_stream ? 1 : 0)) * reduce + waits(times.input + times.weight);
  switch (job.recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kElementwise:
      times.input += 0.6 * memory;
      break;
    case Recompute::kActivation:
      times.input += 0.3 * memory;
      break;
    case Recompute::kAttention:
      times.input += products.attention + 0.4 * memory;
      break;
    case Recompute::kOperations:
      times.input += products.forward / 2 + memory;
      times.backward_tensor += shape.sublayers / 2 * reduce;
      break;
    case Recompute::kHalf:
      times.input += times.forward / 2;
      times.backward_tensor += shape.sublayers / 2 * reduce;
      break;
    case Recompute::kFull:
      times.input +=
          (times.forward - (job.software.recompute_stops_early ? products.last : 0)) *
              job.recompute_share +
          (job.recompute_others == Recompute::kNone ? 0 : 0.6) * memory * (1 - job.recompute_share);
      times.backward_tensor += shape.sublayers * reduce * job.recompute_share;
      times.input += job.software.waits_for_host ? physics.host_seconds : 0;
      break;
  }
  return times;
}

PassTimes blocks_seconds(
    const Job& job, const Cluster& cluster, const NodeGroup& node, const BlockCounts& blocks) {
  PassTimes times;
  visit_blocks(blocks, [&](BlockKind kind, double count) {
    times += block_seconds(job, cluster, node, kind).scaled(count);
  });
  return times;
}

PassTimes embedding_seconds(const Job& job, const Cluster& cluster, const NodeGroup& node) {
  const double numbers = job.all_micro_tokens() * static_cast<double>(job.model.hidden_size);
  const double bytes = numbers * job.compute_bytes();
  PassTimes times;
  times.forward = memory_seconds(node.device, 2 * bytes, job.precision);
  times.weight = job.adapter_rank > 0 ? 0 : memory_seconds(node.device, 4 * bytes, job.precision);
  times.of(Kernels::kElementwise) = times.forward + times.weight;
  times.forward_tensor = tensor_reduce_seconds(job, cluster, node, numbers);
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
  const double softmax = efficiency_of(node.device, precision).softmax;
  const auto moved = [&](double per_logit) {
    return memory_seconds(node.device, bytes * per_logit, precision) / softmax;
  };
  times.forward = product + moved(fused ? 4 : 16);
  times.input = product + moved(fused ? 4 : 18);
  times.weight = job.adapter_rank > 0 ? 0 : product;
  times.of(Kernels::kHead) = times.forward + times.input + times.weight;
  times.backward_tensor = tensor_reduce_seconds(job, cluster, node, tokens * hidden);
  return times;
}

}  // namespace lockstep::plan
