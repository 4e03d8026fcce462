// Bytes and floating-point operations of the kernels of a gated RMSNorm block on one GPU, and the
// minimum time on a device: a roofline without kernel launches and waves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/machines/device.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Kernels of one sort, of a layer's forward and backward passes over one micro-batch.
struct BudgetLine {
  const char* what = "";
  int kernels = 0;
  double flops = 0;
  double bytes = 0;           // of their operands, each read or written once
  bool is_of_update = false;  // once a step, whatever the number of micro-batches
};

/// Whether the model's blocks are of that sort: a gated MLP, attention with rotated heads, RMS
/// norms before both; no mixture, no norms of heads.
bool has_layer_budget(const model::ModelConfig& model);

/// Of one block on a rank, in 16 bits, with AdamW's float32 state; tensor ranks share its products.
std::vector<BudgetLine> layer_budget(const Job& job);
/// Of what stands around the blocks: the embedding, the last norm, the head with its loss.
std::vector<BudgetLine> head_budget(const Job& job);

/// The sum over lines of the longer of computing at the device's 16-bit rate and of moving at its
/// bandwidth.
double roofline_seconds(const Device& device, std::span<const BudgetLine> lines);

/// Of a step of one rank, all layers, without communication.
struct RooflineStep {
  double seconds = 0;
  double tokens_per_second = 0;
  double utilisation = 0;  // of the 16-bit rate, by the model's products alone
};
RooflineStep roofline_step(const Device& device, const Job& job);

/// The lines, and a step on an H100, an H200 and a B200. Empty where the model has no budget.
std::string budget_table(const Job& job);

}  // namespace lockstep::plan
