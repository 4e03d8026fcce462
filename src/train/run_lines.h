// First and last lines of a run: model, plan, batch and predictions; result and the next command.
#pragma once

#include <string>
#include <vector>

#include "config/core/config.h"
#include "config/mesh.h"
#include "model/quantization.h"
#include "train/job.h"

namespace lockstep::train {

/// Returns the type of the products: "bfloat16".
const char* precision_text(const config::Config& config);

/// Returns the axes of a mesh with several ranks: {"data 2", "tensor 2"}.
std::vector<std::string> axes_text(const mesh::Mesh& mesh);

/// Returns the plan in one line: "data 2 x tensor 2, ZeRO 3, LoRA r=16 on NF4, recompute full,
/// bfloat16". `packed`: format of the frozen weights, if they are packed.
std::string plan_line(
    const config::Config& config,
    const mesh::Mesh& mesh,
    const std::optional<model::Quantization>& packed);

/// Returns the task: "language modeling", "preference tuning (dpo)".
std::string task_line(const config::Config& config, const objective::Task& task);

/// Returns the batch: "8 sequences per step (2 data ranks x 4 x 1 accumulated)".
std::string batch_line(const config::TrainingSection& training, int64_t data_ranks);

/// Logs model, task, plan, batch, steps and epochs. Call on rank 0 when the job is built.
void print_beginning(const Job& job, const RankContext& rank_context);

/// Logs where the model is, the last and the best result, the checkpoints, and a command that uses
/// the model. Call on rank 0 at the end.
void print_end(const Job& job);

}  // namespace lockstep::train
