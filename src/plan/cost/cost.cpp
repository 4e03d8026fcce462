// Estimates the forward and backward time of blocks, embedding and head.
#include "plan/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/cost/attention.h"
#include "plan/cost/block_shape.h"
#include "plan/cost/kernels.h"

namespace lockstep::plan {

namespace {

// Relative rate of 8-bit products with many scales compared with one scale per tensor.
double scaled_share(const Job& job, const Physics& physics, const Device& device) {
  if (device.flops8 <= 0) {
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

// Returns true if experts and the sorting of tokens are modeled separately. On a measured machine,
// expert time is only known as MLP time.
bool sorts_tokens(const Device& device, BlockKind kind) {
  return kind == BlockKind::kSparseDecoder && !device.measured;
}

// Times of a block's matrix products: products with weights (forward, input gradient, weight
// gradient) and attention products (forward).
struct BlockProducts {
  double forward = 0, input = 0, weight = 0;
  double attention = 0;
  double last = 0;  // share of `forward` due to the block's last product
};

BlockProducts block_products(
    const Job& job,
    const Physics& physics,
    const Device& device,
    const BlockShape& s,
    BlockKind kind) {
  double count = 1;  // number of batched products
  const auto product = [&](double m, double n, double k) {
    const auto seconds = [&](Precision precision) {
      return product_seconds(physics, device, precision, count, m, n, k) /
             (job.software.early_libraries ? physics.early_libraries : 1);
    };
    if (job.precision != Precision::kFloat8) {
      return seconds(job.precision);
    }
    // Weighted mean, because some blocks use 16 bits.
    return job.float8_share * seconds(Precision::kFloat8) / scaled_share(job, physics, device) +
           (1 - job.float8_share) * seconds(Precision::kMixed16);
  };
  BlockProducts times;
  const auto add = [&](double tokens, double out, double in) {
    times.last = product(tokens, out, in);
    times.forward += times.last;
    times.input += product(tokens, in, out);
    // The token count is the reduction dimension, so it does not affect row alignment.
    const double summed = device.measured ? tokens : std::ceil(tokens / 64) * 64;
    times.weight += job.adapter_rank > 0 ? 0 : product(out, in, summed);
    if (job.adapter_rank > 0) {
      const auto rank = static_cast<double>(job.adapter_rank);
      const double share = job.adapter_share;
      times.forward += share * (product(tokens, rank, in) + product(tokens, out, rank));
      times.input += share * (product(tokens, rank, out) + product(tokens, in, rank));
      times.weight += share * (product(rank, in, summed) + product(out, rank, summed));
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
  const auto add_mlp = [&](double tokens, double width) {
    add(tokens, s.matrices * width, s.hidden);
    add(tokens, s.hidden, width);
  };
  if (!sorts_tokens(device, kind) || job.adapter_rank > 0) {
    add_mlp(s.tokens, s.width);
    return times;
  }
  // Assumes that all experts on the rank receive the same number of tokens.
  const model::Experts& experts = job.model.experts;
  const auto of_tensor = [&](int64_t width) {
    return std::ceil(static_cast<double>(width) / job.mesh.tensor);
  };
  if (experts.shared_width > 0) {
    add_mlp(s.tokens, of_tensor(experts.shared_width));
  }
  count = std::max(1.0, static_cast<double>(experts.count) / job.expert_ranks);
  add_mlp(
      std::max(1.0, s.tokens * static_cast<double>(experts.per_token) / count),
      of_tensor(experts.width));
  return times;
}

// Returns the time to copy token rows into expert order and back. With expert parallelism, both
// sender and receiver copy.
double sorting_seconds(const Job& job, const Device& device, const BlockShape& s, BlockKind kind) {
  if (!sorts_tokens(device, kind)) {
    return 0;
  }
  const double rows = s.tokens * static_cast<double>(job.model.experts.per_token);
  const double copies = job.expert_ranks > 1 ? 6 : 2;
  return memory_seconds(device, copies * rows * s.hidden * job.compute_bytes(), job.precision);
}

// Returns the number of elements that a block rounds to 8 bits in a forward pass.
double rounded_numbers(const Job& job, const BlockShape& s) {
  if (!job.software.rounds_again) {  // each input is rounded once for all products that use it
    return s.tokens * (2 * s.hidden + s.queries + s.width);
  }
  // Forward: each weight is rounded once, and each input once for all products that use it.
  // Backward: both are rounded again, and the gradient twice. The result is the share of a forward
  // pass; a backward pass counts 1.2 times as much.
  const double inputs = 2 * s.hidden + s.queries + s.width;
  const double outputs = s.queries + 2 * s.keys + 2 * s.hidden + s.matrices * s.width;
  const double weights = s.hidden * (2 * s.queries + 2 * s.keys + (s.matrices + 1) * s.width);
  return 2 / 2.2 * (s.tokens * (inputs + outputs) + weights);
}

// Returns the bytes moved in the forward pass by a block's element-wise kernels. A fused norm with
// residual reads two tensors and writes two; eager kernels access memory in every operation.
ElementwiseBytes elementwise_bytes(const Job& job, const BlockShape& s) {
  const bool fused = job.software.fused_elementwise;
  const double spread = job.sequence_parallel ? job.mesh.tensor : 1;
  const double wide = job.precision == Precision::kFloat32 ? 2 : 1;
  // An unfused RMSNorm runs as five float32 kernels.
  double of_hidden = fused ? 8 : (job.model.gated_mlp ? 42 : 14);
  of_hidden += job.software.dropout ? (fused ? 1 : 5) : 0;
  of_hidden *= (s.sublayers + (s.ends_stream ? 1 : 0)) / 2;
  // Unfused: rotary embeddings are computed in float32, and grouped keys and values are repeated.
  const double of_queries =
      !fused ? (job.model.gated_mlp ? 12 : 5) : (attention_of(job) == Attention::kScores ? 4 : 2);
  const double of_width = job.model.gated_mlp ? (fused ? 3 : 5) : (fused ? 2 : 4);
  const double heads =
      static_cast<double>(s.attentions) * s.tokens * s.queries + 2 * s.key_tokens() * s.keys;
  ElementwiseBytes bytes;
  bytes.activation = kHalf * wide * s.tokens * of_width * s.width;
  bytes.others = kHalf * wide * (s.tokens * of_hidden * s.hidden / spread + of_queries * heads);
  bytes.scores = attention_of(job) == Attention::kScores ? s.scores() * score_bytes(job) : 0;
  if (job.precision == Precision::kFloat8) {
    bytes.others += job.float8_share * job.software.rounding_bytes * rounded_numbers(job, s);
  }
  return bytes;
}

// Returns the number of kernels in a block's forward pass.
double kernels(const Job& job, const BlockShape& s) {
  const double of_scores = has_score_bias(job.model) ? 8 * static_cast<double>(s.attentions) : 0;
  return (job.software.fused_elementwise ? 6 : 13) * s.sublayers + of_scores;
}

CollectiveGroup tensor_group(const Job& job, const NodeGroup& node) {
  const double members = job.mesh.tensor;
  return {members, std::min<double>(members, node.devices_per_node)};
}

// Returns the time of an all-reduce of `numbers` elements over the tensor-parallel group.
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

// Computes the times of a block's passes from its operations.
class BlockPass {
 public:
  BlockPass(const Job& job, const Cluster& cluster, const NodeGroup& node, BlockKind kind)
      : job_(job),
        cluster_(cluster),
        node_(node),
        kind_(kind),
        shape_(shape_of(job, kind)),
        products_(block_products(job, cluster.physics, node.device, shape_, kind)),
        memory_(
            elementwise_seconds(node.device, elementwise_bytes(job, shape_), job.precision) +
            sorting_seconds(job, node.device, shape_, kind)) {}

  PassTimes times() && {
    compute();
    draw_dropout();
    times_.of(Kernels::kProducts) = products_.forward + products_.input + products_.weight;
    times_.of(Kernels::kAttention) = products_.attention * (1 + attention_backward(job_));
    times_.of(Kernels::kElementwise) = unnamed();
    if (job_.mesh.context > 1) {
      share_sequence();
      times_.of(Kernels::kContext) = unnamed();
    }
    if (job_.expert_ranks > 1 && kind_ == BlockKind::kSparseDecoder) {
      exchange_tokens();
      times_.of(Kernels::kExperts) = unnamed();
    }
    sum_over_tensor();
    recompute();
    return times_;
  }

 private:
  // Forward time not yet assigned to a kind of kernels.
  double unnamed() const {
    return times_.forward + times_.input + times_.weight -
           std::accumulate(times_.kernels.begin(), times_.kernels.end(), 0.0);
  }

  void compute() {
    const Device& device = node_.device;
    const double launch =
        kernels(job_, shape_) *
        (device.measured ? device.kernel_seconds : cluster_.physics.kernel_seconds);
    times_.forward = products_.forward + products_.attention + memory_ + launch;
    times_.input = products_.input + products_.attention * attention_backward(job_) +
                   1.2 * memory_ + 2 * launch;
    times_.weight = products_.weight;
  }

  // Adds the time to draw random numbers for dropout, in the forward and again in the backward
  // pass. They are drawn for the scores (with fused attention only the unmasked ones) and for the
  // outputs added to the residual.
  void draw_dropout() {
    if (!job_.software.dropout || !node_.device.measured) {
      return;
    }
    const bool fused = attention_of(job_) == Attention::kFused;
    const double draws = shape_.scores() * (fused ? 0.5 : 1) +
                         shape_.tokens * (shape_.sublayers * shape_.hidden +
                                          (job_.model.mlp_dropout > 0 ? shape_.width : 0));
    times_.forward += draws * node_.device.dropout_seconds;
    times_.input += draws * node_.device.dropout_seconds;
  }

  void share_sequence() {
    double ring = 0;
    for (size_t i = 0; i < shape_.attentions; ++i) {
      const AttentionShape& attention = shape_.attention[i];
      ring += context_seconds(
          job_,
          cluster_,
          node_,
          shape_,
          attention,
          attention_seconds(job_, cluster_.physics, node_.device, shape_, attention));
    }
    times_.forward += ring + node_.wait_seconds(times_.forward);
    times_.input += 2 * ring + node_.wait_seconds(times_.input + times_.weight);
  }

  // Adds the all-to-all of tokens in the forward pass and of gradients in the backward pass. The
  // experts wait for their tokens, and the block waits for the results. Overlap with a shared
  // expert is not modeled.
  void exchange_tokens() {
    const double members = job_.expert_ranks;
    const double per_node = std::max(1.0, std::floor(node_.devices_per_node / job_.mesh.tensor));
    const double bytes = shape_.tokens * static_cast<double>(job_.model.experts.per_token) *
                         shape_.hidden * job_.compute_bytes();
    const double way =
        all_to_all_seconds(cluster_, node_, {members, std::min(members, per_node)}, bytes);
    times_.forward += 2 * way + node_.wait_seconds(times_.forward);
    times_.input += 2 * way + node_.wait_seconds(times_.input + times_.weight);
  }

  void sum_over_tensor() {
    reduce_ = tensor_reduce_seconds(job_, cluster_, node_, shape_.tokens * shape_.hidden) *
              (1 - (1 - cluster_.physics.tensor_exposed) * job_.software.overlap_tensor);
    // In each sublayer, all ranks wait for the slowest rank in both passes. The gradient of the
    // encoder output, an input of all decoder blocks, is reduced once, at the end of the encoder.
    const auto waits = [&](double computed) {
      return job_.mesh.tensor > 1
                 ? shape_.sublayers * node_.wait_seconds(computed / shape_.sublayers)
                 : 0;
    };
    times_.forward_tensor = shape_.sublayers * reduce_ + waits(times_.forward);
    times_.backward_tensor = (shape_.sublayers + (shape_.ends_stream ? 1 : 0)) * reduce_ +
                             waits(times_.input + times_.weight);
  }

  void recompute() {
    const Software& software = job_.software;
    switch (job_.recompute) {
      case Recompute::kNone:
        break;
      case Recompute::kElementwise:
        times_.input += 0.6 * memory_;
        break;
      case Recompute::kActivation:
        times_.input += 0.3 * memory_;
        break;
      case Recompute::kAttention:
        times_.input += products_.attention + 0.4 * memory_;
        break;
      case Recompute::kOperations:
        times_.input += products_.forward / 2 + memory_;
        times_.backward_tensor += shape_.sublayers / 2 * reduce_;
        break;
      case Recompute::kHalf:
        times_.input += times_.forward / 2;
        times_.backward_tensor += shape_.sublayers / 2 * reduce_;
        break;
      case Recompute::kFull:
        times_.input += (times_.forward - (software.recompute_stops_early ? products_.last : 0)) *
                            job_.recompute_share +
                        (job_.recompute_others == Recompute::kNone ? 0 : 0.6) * memory_ *
                            (1 - job_.recompute_share);
        times_.backward_tensor += shape_.sublayers * reduce_ * job_.recompute_share;
        times_.input += software.waits_for_host ? cluster_.physics.host_seconds : 0;
        break;
    }
  }

  const Job& job_;
  const Cluster& cluster_;
  const NodeGroup& node_;
  BlockKind kind_;
  BlockShape shape_;
  BlockProducts products_;
  double memory_;      // bytes moved by element-wise kernels, forward
  double reduce_ = 0;  // exposed time of an all-reduce over the tensor-parallel group
  PassTimes times_;
};

}  // namespace

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
  return BlockPass(job, cluster, node, kind).times();
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
      std::ceil(static_cast<double>(job.model.head_rows()) / 64 / job.mesh.tensor) * 64;
  const Precision precision =
      job.precision == Precision::kFloat8 ? Precision::kMixed16 : job.precision;
  const double product =
      product_seconds(cluster.physics, node.device, precision, 1, tokens, vocabulary, hidden);
  // Logits are converted to float32 for the loss. Fused kernels read them once per pass.
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
