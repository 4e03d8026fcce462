// Estimates the time of attention, on one rank and with context parallelism.
#include "plan/cost/attention.h"

#include <algorithm>

#include "plan/cost/kernels.h"

namespace lockstep::plan {

namespace {

constexpr double kRingBackward =
    2;  // ratio of backward to forward time of ring attention with scores in memory

// Returns true if the time of ring attention follows from measured rates of the machine.
bool ring_is_measured(const Job& job, const Device& device) {
  return device.measured && !has_score_bias(job.model);
}

// Returns the forward time of ring attention. Each rank holds two chunks of the sequence, one from
// each end, and computes all pairs of chunks that are not fully masked. Pairs on the diagonal are
// computed in full. With a score bias, all pairs are computed.
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
  // Bytes read and written per score. The first product, scale, mask, maximum, exponential, sum and
  // second product are separate float32 kernels.
  constexpr double kScoreBytes = 52;
  const double products =
      product_seconds(
          physics, device, job.precision, sequences * s.heads, pairs * queries, keys, s.head_dim) +
      product_seconds(
          physics, device, job.precision, sequences * s.heads, pairs * queries, s.head_dim, keys);
  return products + elementwise_seconds(device, {.scores = scores * kScoreBytes}, job.precision);
}

}  // namespace

Attention attention_of(const Job& job) {
  if (job.mesh.context > 1 && job.software.ring_in_memory &&
      job.context_attention == ContextAttention::kRing) {
    return Attention::kRing;
  }
  return job.software.fused_attention && !has_score_bias(job.model) ? Attention::kFused
                                                                    : Attention::kScores;
}

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
      // Only unmasked scores are computed. Short sequences leave some processors idle.
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

double attention_backward(const Job& job) {
  switch (attention_of(job)) {
    case Attention::kRing:
      return kRingBackward;
    case Attention::kFused:
      return 2.5 *
             1.15;  // five products instead of two; the kernel is 1.15 times slower per product
    case Attention::kScores:
      break;
  }
  return 2;
}

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
  const bool measured =
      within && attention_of(job) == Attention::kRing &&
      ring_is_measured(job, node.device);  // the measured time includes communication
  const double wire = measured ? 0 : (ranks - 1) * message_seconds(cluster, node, within, bytes);
  const bool merges = attention_of(job) != Attention::kRing;
  const double merge = memory_seconds(
      node.device, (ranks - 1) * s.tokens * s.queries * (merges ? job.software.merge_bytes : 0));
  return (job.software.overlap_data ? std::max(0.0, wire - attention) : wire) + merge;
}

double score_bytes(const Job& job) {
  const double wide = job.precision == Precision::kFloat32 ? 2 : 1;
  if (!has_score_bias(job.model)) {
    // Scale, mask and softmax are fused into one kernel or run as one kernel each; dropout is an
    // additional kernel. Each kernel reads and writes the scores and the masks.
    const double softmax = job.software.fused_softmax ? 4 : 13;
    const double dropout = job.software.fused_score_dropout ? 3 : 5;
    return (softmax + (job.software.dropout ? dropout : 0)) * wide;
  }
  // Bias, masked copy and softmax are float32 kernels. 16-bit scores are converted to float32
  // before and back to 16 bits after these kernels. Dropout is a further kernel.
  constexpr double kWideKernels = 4 * 8;
  return kWideKernels + (wide == 1 ? 6 + 6 : 0) + (job.software.dropout ? 2 * kHalf * wide : 0);
}

}  // namespace lockstep::plan
