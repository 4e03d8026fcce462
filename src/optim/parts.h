// Iterates over a shard in chunks, so that optimizers written with ATen operations need little
// temporary memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Chunk of a shard that one call updates, in float32.
struct Part {
  at::Tensor weight;    // the master weights or the parameter itself; updated in place
  at::Tensor gradient;  // scaled copy, which may be overwritten
  double learning_rate, weight_decay;
};

/// Returns the number of elements per chunk. On a CPU, each thread's part of a chunk is small
/// enough that four tensors fit in its core's L2 cache. On a device, a chunk is as large as an
/// embedding, because each operation is a kernel launch.
inline int64_t elements_of_run(const at::Tensor& tensor) {
  return tensor.is_cpu() ? at::get_num_threads() * (int64_t{1} << 16) : int64_t{1} << 26;
}

/// Calls update(part, begin) for chunks of at most elements_of_run() elements with the same rule,
/// and rounds the results into the parameter.
template <class Update>
void for_each_part(
    const Shard& shard,
    std::span<const Run> runs,
    std::span<const UpdateRule> rules,
    double learning_rate,
    double gradient_scale,
    const Update& update) {
  const int64_t most = elements_of_run(shard.parameter);
  const bool has_master = shard.master.defined() && !shard.master.is_same(shard.parameter);
  const at::Tensor& weight = has_master ? shard.master : shard.parameter;
  for (const Run& run : runs) {
    const UpdateRule& rule = rules[run.rule];
    for (int64_t begin = run.begin; begin < run.end; begin += most) {
      const int64_t count = std::min(most, run.end - begin);
      const Part part{
          weight.narrow(0, begin, count),
          shard.gradient.narrow(0, begin, count).to(at::kFloat).mul(gradient_scale),
          learning_rate * rule.learning_rate,
          rule.weight_decay.value_or(0)};
      update(part, begin);
      if (has_master) {
        shard.parameter.narrow(0, begin, count).copy_(part.weight);
      }
    }
  }
}

}  // namespace lockstep::optim
