// State of a training run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/async_saver.h"
#include "checkpoint/in_memory_checkpoint.h"
#include "checkpoint/object_store_run.h"
#include "checkpoint/output_dir_lock.h"
#include "config/core/config.h"
#include "data/loader.h"
#include "model/adapters.h"
#include "model/source.h"
#include "monitor/monitor.h"
#include "objective/task.h"
#include "optim/schedule.h"
#include "parallel/model_spec.h"
#include "parallel/parallel_model.h"
#include "parallel/ranks/parallel_groups.h"
#include "text/tokenizer.h"
#include "train/batches/datasets.h"
#include "train/batches/labelled_data.h"
#include "train/best.h"
#include "train/epoch_rows.h"
#include "train/evaluate.h"
#include "train/interruption.h"
#include "train/judgement/judgement.h"
#include "train/machine/rank_context.h"
#include "train/run_length.h"
#include "train/tasks/answer_reference.h"
#include "train/tasks/classification.h"
#include "train/tasks/unlearning.h"

namespace lockstep::train {

/// Progress of a run; restored from checkpoints.
struct Progress {
  int64_t step = 0;    // completed optimizer steps
  int64_t tokens = 0;  // tokens read by all ranks
  double epoch = 0;
  data::SamplerState sampler;
  bool owes_evaluation = false;  // a signal ended the evaluation after this step
};

/// Change of the learning rate that a user made during the run (train/steering.h).
struct RateAct {
  int64_t step = 0;          // completed steps at that time
  double learning_rate = 0;  // new value of the configuration's key, from the next step on
  double configured = 0;     // configured value at that time
};

/// Weights of the layers after the end of a truncated model. They are not run, and saved unchanged.
struct UntouchedWeights {
  model::ModelConfig whole;
  parallel::ModelSpec::Fill fill;
  std::vector<model::ParameterSpec> parameters;
};

struct Job {
  config::Config config;
  std::string resolved;  // configuration in YAML
  model::ModelSource source;
  objective::Task task;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Datasets datasets;
  LabelledData rows;     // classifiers only, on rank 0; otherwise empty
  JudgeOptions judging;  // loss and metrics options
  /// Labels of generative classification and their token sequences. Otherwise empty.
  std::optional<model::HeadSpec> written_labels;
  WrittenLabels written;
  AnswerSets answers;  // for preference tuning and unlearning; otherwise empty
  /// Rows that the reference model scores, for unlearning methods with row weights. Otherwise null.
  std::shared_ptr<const data::SequenceView> scored_rows;
  RunLength length;
  std::unique_ptr<checkpoint::OutputDirLock> hold;  // locks training.output_dir
  /// Set if output_dir is in an object store. training.output_dir is then a local working folder.
  std::unique_ptr<checkpoint::ObjectStoreRun> stored;
  /// Checkpoint to resume from; nullopt for a run that starts at its beginning.
  std::optional<std::filesystem::path> resume_from;
  std::unique_ptr<parallel::ParallelGroups> axes;
  std::unique_ptr<parallel::ParallelGroups>
      evaluation_axes;  // for unlearning metrics; null until first used
  std::unique_ptr<parallel::ParallelModel> model;
  std::optional<UntouchedWeights> untouched;        // empty if the whole model is run
  std::shared_ptr<const model::Adapters> adapters;  // null if the model itself is trained
  std::unique_ptr<AnswerReference>
      answer_reference;  // scores of the reference model; null if not needed
  std::unique_ptr<optim::Schedule> schedule;
  optim::ScheduleOptions schedule_options;  // options of the schedule
  std::vector<RateAct> rate_acts;           // learning rate changes so far, by step
  std::vector<RateAct> acts_to_come;  // changes after the checkpoint that the run resumes from
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<monitor::Monitor> monitor;      // on rank 0; null on the other ranks
  std::unique_ptr<checkpoint::AsyncSaver> saver;  // null: saves are synchronous
  int64_t snapshot_bytes = 0;  // host memory for the background copy of the state
  std::unique_ptr<checkpoint::InMemoryCheckpoint> kept;  // null: no in-memory checkpoints
  int64_t global_batch = 0;                              // sequences per step, over all ranks
  double flops_per_token = 0;
  Progress progress;
  BestRule best_rule;
  Best best;
  /// Ends evaluations when a signal asks; null before training.
  Interruption* interruption = nullptr;
  bool gradient_was_zero = false;  // of the last step; on rank 0
  bool drops_out = true;           // false disables the dropout of the model's config.json
  /// For unlearning: marks the positions whose targets are distributions. Otherwise empty.
  Preparation mark_targets;
  std::optional<RetainWeight> retain_weight;  // only for PDU
  EpochRows epoch_rows;  // classifiers only: rows of the current epoch, identical on all ranks
  /// Results of a classifier's last evaluation.
  std::optional<Judgement> judgement;
  Classified classified;

  double temperature = 1;  // divisor of a classifier's logits (task.calibration)
  /// Returns true if the model assigns labels to rows, either by a classification head or as
  /// generated text.
  bool is_classifier() const;
  /// Returns the labels with which predictions are scored.
  const model::HeadSpec& judged_head() const {
    return written_labels ? *written_labels : task.head;
  }
  /// Returns true if there is something to evaluate on.
  bool can_evaluate() const;
  /// Returns true if the run evaluates at this point (eval_strategy, eval_steps, eval_delay).
  bool evaluation_is_due(const StepEnd& at) const;
  /// Evaluates and logs. Metric names start with `prefix` and end with `suffix` (eval_loss_mm).
  /// Must be called on every rank.
  Evaluation evaluate(
      const data::SequenceView& sequences,
      const std::string& prefix,
      RankContext& rank_context,
      const std::string& suffix = "");
  void report_evaluation(
      const Evaluation& result, const std::string& prefix, const std::string& suffix = "");
  /// Evaluates and logs without any effect on training. Must be called on every rank.
  Evaluation evaluate_by_the_way(RankContext& rank_context);
  /// Evaluates on data.validation, or with the unlearning metrics. Records the best result and
  /// updates the schedule. Returns the line that it printed (print_evaluation). Every rank must
  /// call.
  std::string evaluate_training(RankContext& rank_context);
};

/// Opens the model description, tokenizer, data and task, before anything large is loaded. Must be
/// called on every rank.
std::unique_ptr<Job> open_job(
    const config::Config& config, const std::string& resolved, RankContext& rank_context);

/// Builds the model, optimizer, schedule and loader. Restores a checkpoint if the run resumes. Must
/// be called on every rank.
void build_job(Job& job, RankContext& rank_context);

/// Completes the run: final evaluations, result files, and the model in output_dir. Must be called
/// on every rank.
void finish_job(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
