// Everything that a training run holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/async_saver.h"
#include "checkpoint/output_hold.h"
#include "config/core/config.h"
#include "data/loader.h"
#include "model/adapters.h"
#include "model/source.h"
#include "monitor/monitor.h"
#include "objective/task.h"
#include "optim/schedule.h"
#include "parallel/parallel_model.h"
#include "parallel/ranks/axes.h"
#include "text/tokenizer.h"
#include "train/answer_reference.h"
#include "train/best.h"
#include "train/classification.h"
#include "train/datasets.h"
#include "train/evaluate.h"
#include "train/judgement.h"
#include "train/labelled_data.h"
#include "train/run_length.h"
#include "train/world.h"

namespace lockstep::train {

/// How far a run is: what a checkpoint brings back.
struct Progress {
  int64_t step = 0;    // optimizer steps done
  int64_t tokens = 0;  // read so far, all ranks
  double epoch = 0;
  data::SamplerState sampler;
};

struct Job {
  config::Config config;
  std::string resolved;  // the configuration as a file
  model::ModelSource source;
  objective::Task task;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Datasets datasets;
  LabelledData rows;     // of a classifier, rank 0's; else empty
  JudgeOptions judging;  // of its loss and its answers
  AnswerSets answers;    // of preference tuning and unlearning; else empty
  /// Of unlearning by row scores: the rows that are scored. Else null.
  std::shared_ptr<const data::SequenceView> scored_rows;
  RunLength length;
  std::unique_ptr<checkpoint::OutputHold> hold;  // on training.output_dir
  std::unique_ptr<parallel::Axes> axes;
  std::unique_ptr<parallel::ParallelModel> model;
  std::shared_ptr<const model::Adapters> adapters;    // what of it is trained; null: itself
  std::unique_ptr<AnswerReference> answer_reference;  // of answers; else null
  std::unique_ptr<optim::Schedule> schedule;
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<monitor::Monitor> monitor;      // rank 0's; null on the others
  std::unique_ptr<checkpoint::AsyncSaver> saver;  // null: saves are waited for
  int64_t snapshot_bytes = 0;                     // of host memory, that it copies a state to
  int64_t global_batch = 0;                       // sequences of a step, all ranks
  double flops_per_token = 0;
  Progress progress;
  BestRule best_rule;
  Best best;
  bool drops_out = true;  // in training, as the model's config.json says
  /// Of unlearning: says which positions have distributions for targets. Else empty.
  Preparation mark_targets;
  /// Of a classifier, what its last evaluation found.
  std::optional<Judgement> judgement;
  Classified classified;

  /// Evaluates and logs. Every rank must call.
  Evaluation evaluate(const data::SequenceView& sequences, const std::string& prefix, World& world);
  /// Evaluates on data.validation, keeps the best after a step, and tells the schedule. Every rank
  /// must call.
  void evaluate_training(World& world);
};

/// Opens what a run is made from: the model's description, the tokenizer, the data and its task;
/// what is known before anything large is loaded. Every rank must call.
std::unique_ptr<Job> open_job(
    const config::Config& config, const std::string& resolved, World& world);

/// Builds the rest, from the files or from a checkpoint where one is to be resumed. Every rank must
/// call.
void build_job(Job& job, World& world);

/// After the last step: closing evaluations, the results' files, the model in output_dir.
void finish_job(Job& job, World& world);

}  // namespace lockstep::train
