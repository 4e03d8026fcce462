// Computes the roofline budget of a layer's kernels.
#include "plan/cost/layer_budget.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "plan/cost/block_shape.h"
#include "plan/cost/kernels.h"

namespace lockstep::plan {

namespace {

constexpr double kGradientPasses = 2;  // input gradient and weight gradient
constexpr double kStateBytes = 24;     // bytes of master weight and moments read and written

struct LinearKernel {
  double in, out;
};

/// Returns the forward and backward budget of all products of a block.
BudgetLine products_of(std::span<const LinearKernel> products, double tokens) {
  BudgetLine line{"products", 0};
  for (const auto& [in, out] : products) {
    line.kernels += 1 + static_cast<int>(kGradientPasses);
    line.flops += (1 + kGradientPasses) * 2 * tokens * in * out;
    line.bytes += (1 + kGradientPasses) * kHalf * (tokens * in + in * out + tokens * out);
  }
  return line;
}

double weights_of(std::span<const LinearKernel> products) {
  double sum = 0;
  for (const auto& [in, out] : products) {
    sum += in * out;
  }
  return sum;
}

/// Flash attention stores one float32 number per query. The backward pass recomputes the scores and
/// therefore has five products instead of two.
BudgetLine attention_of(const BlockShape& shape) {
  constexpr double kOfBackward = 2.5;
  const AttentionShape& attention = shape.attention.front();
  const double numbers = shape.queries * 2 + shape.keys * 2;  // q, out, k, v per token
  const double sums = 4 * shape.heads;
  const double forward = 4 * shape.tokens * attention.keys_length * attention.seen * shape.queries;
  return {
      "attention", 2, forward * (1 + kOfBackward), shape.tokens * (kHalf * 3 * numbers + 2 * sums)};
}

BudgetLine update_of(const char* what, int kernels, double parameters) {
  // The gradient is read twice, for the norm and for the update; the weight is written.
  return {what, kernels, 0, parameters * (kStateBytes + 3 * kHalf), true};
}

/// Devices shown in the table.
constexpr std::array<const char*, 3> kDevices{"h100-80gb", "h200", "b200"};

std::string row(const BudgetLine& line) {
  std::string text = fmt::format(
      "  {:<28} {:>7} {:>9.1f} {:>9.3f}",
      line.what,
      line.kernels,
      line.bytes / 1e6,
      line.flops / 1e12);
  for (const char* name : kDevices) {
    text += fmt::format(" {:>9.3f}", 1e3 * roofline_seconds(find_device(name), {&line, 1}));
  }
  return text + "\n";
}

}  // namespace

bool has_layer_budget(const model::ModelConfig& model) {
  const bool is_family =
      model.family == model::Family::kLlama || model.family == model::Family::kMistral;
  return is_family && model.gated_mlp && model.experts.count == 0 && !model.head_norms &&
         !model.parallel_residual && !model.qkv_bias && !model.attention_out_bias &&
         !model.mlp_bias && model.residual_dropout == 0 && model.attention_dropout == 0;
}

std::vector<BudgetLine> layer_budget(const Job& job) {
  const BlockShape shape = shape_of(job, BlockKind::kDecoder);
  const double tokens = shape.tokens, hidden = shape.hidden, width = shape.width;
  const std::array<LinearKernel, 7> products{{
      {hidden, shape.queries},
      {hidden, shape.keys},
      {hidden, shape.keys},
      {shape.queries, hidden},
      {hidden, width},
      {hidden, width},
      {width, hidden},
  }};
  const double parameters = weights_of(products) + 2 * hidden;
  const double row = kHalf * tokens * hidden, rotated = shape.queries + shape.keys;
  // Float32 cosines and sines per position.
  const double angles = 2 * 4 * shape.attention.front().queries_length * shape.head_dim / 2;
  // Tensors moved in the forward pass: x and its norm; x, residual, their sum and its norm.
  // Backward pass, for each of the two norms: two gradients, the normalized input and the resulting
  // gradient.
  const double runs =
      kHalf * hidden > 2048 ? 512 : 1024;  // float32 partial sums, as in cuda/norms.h
  const double norms = (2 + 4 + 2 * 4) * row + 2 * 2 * runs * 4 * hidden;
  return {
      products_of(products, tokens),
      attention_of(shape),
      {"RMSNorm, with the residual", 6, 0, norms},
      {"RoPE", 4, 0, 2 * kHalf * 2 * tokens * rotated + 4 * angles},
      {"SwiGLU", 2, 0, (3 + 5) * kHalf * tokens * width},
      {"sums", 4, 0, 4 * 3 * row},
      update_of("AdamW, squares of gradients", 5, parameters)};
}

std::vector<BudgetLine> head_budget(const Job& job) {
  const double tokens = job.micro_tokens(), hidden = static_cast<double>(job.model.hidden_size);
  const double vocabulary = static_cast<double>(job.model.head_rows()) / job.mesh.tensor;
  const double tables = job.model.ties_head() ? 1 : 2;
  const std::array<LinearKernel, 1> head{{{hidden, vocabulary}}};
  const double row = kHalf * tokens * hidden, logits = kHalf * tokens * vocabulary;
  return {
      products_of(head, tokens),
      {"softmax of logits", 2, 0, 3 * logits},
      {"embedding, last norm", 5, 0, (2 + 1 + 2 + 3) * row + kHalf * vocabulary * hidden},
      update_of("AdamW, squares of gradients", 2, tables * vocabulary * hidden + hidden)};
}

double roofline_seconds(const Device& device, std::span<const BudgetLine> lines) {
  double seconds = 0;
  for (const BudgetLine& line : lines) {
    seconds += std::max(line.flops / device.flops16, line.bytes / device.memory_bandwidth);
  }
  return seconds;
}

RooflineStep roofline_step(const Device& device, const Job& job) {
  const double layers = static_cast<double>(job.model.layers) / job.mesh.pipeline;
  const auto micro_batches = static_cast<double>(job.micro_batches());
  RooflineStep step;
  double flops = 0;
  const auto add = [&](const std::vector<BudgetLine>& lines, double count) {
    for (const BudgetLine& line : lines) {
      const double times = count * (line.is_of_update ? 1 : micro_batches);
      step.seconds += times * roofline_seconds(device, {&line, 1});
      flops += times * line.flops;
    }
  };
  add(layer_budget(job), layers);
  add(head_budget(job), 1);
  step.tokens_per_second = job.micro_tokens() * micro_batches / step.seconds;
  step.utilisation = flops / device.flops16 / step.seconds;
  return step;
}

std::string budget_table(const Job& job) {
  if (!has_layer_budget(job.model)) {
    return "";
  }
  std::string text = fmt::format(
      "kernels of a layer, forward and backward, {:.0f} tokens; minimum time in ms\n"
      "  {:<28} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      job.micro_tokens(),
      "",
      "kernels",
      "MB",
      "TFLOP",
      kDevices[0],
      kDevices[1],
      kDevices[2]);
  const std::vector<BudgetLine> lines = layer_budget(job);
  BudgetLine all{"all", 0};
  std::array<double, kDevices.size()> seconds{};
  for (const BudgetLine& line : lines) {
    text += row(line);
    all.kernels += line.kernels;
    all.flops += line.flops;
    all.bytes += line.bytes;
  }
  for (size_t i = 0; i < kDevices.size(); ++i) {
    seconds.at(i) = 1e3 * roofline_seconds(find_device(kDevices.at(i)), lines);
  }
  text += fmt::format(
      "  {:<28} {:>7} {:>9.1f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f}\n",
      all.what,
      all.kernels,
      all.bytes / 1e6,
      all.flops / 1e12,
      seconds[0],
      seconds[1],
      seconds[2]);
  for (const char* name : kDevices) {
    const RooflineStep step = roofline_step(find_device(name), job);
    text += fmt::format(
        "  a rank's step on {:<10} {:>8.1f} ms, {:.0f} tokens/s, {:.1f}% of the peak\n",
        name,
        1e3 * step.seconds,
        step.tokens_per_second,
        100 * step.utilisation);
  }
  return text + "  (each kernel at the data sheet's rate or bandwidth, without communication)\n";
}

}  // namespace lockstep::plan
