// Everything that a training run holds.
#pragma once

#include <cstdint>
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
#include "train/judgement/judgement.h"
#include "train/machine/rank_context.h"
#include "train/run_length.h"
#include "train/tasks/answer_reference.h"
#include "train/tasks/classification.h"
#include "train/tasks/unlearning.h"

namespace lockstep::train {

/// How far a run is: what a checkpoint brings back.
struct Progress {
  int64_t step = 0;    // optimizer steps done
  int64_t tokens = 0;  // read so far, all ranks
  double epoch = 0;
  data::SamplerState sampler;
};

/// Somebody set the learning rate of a run that goes on (train/steering.h).
struct RateAct {
  int64_t step = 0;          // steps that were done then
  double learning_rate = 0;  // from the next one on, as the configuration's key means it
  double configured = 0;     // the configuration's of then
};

/// What of a model is not run, because it ends at a layer, and is saved as it was read.
struct UntouchedWeights {
  model::ModelConfig whole;
  parallel::ModelSpec::Fill fill;
  std::vector<model::ParameterSpec> parameters;
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
  /// Of a language model that writes labels: the labels, and their texts. Else null, and empty.
  std::optional<model::HeadSpec> written_labels;
  WrittenLabels written;
  AnswerSets answers;  // of preference tuning and unlearning; else empty
  /// Of unlearning by row scores: the rows that are scored. Else null.
  std::shared_ptr<const data::SequenceView> scored_rows;
  RunLength length;
  std::unique_ptr<checkpoint::OutputDirLock> hold;  // on training.output_dir
  /// Where output_dir is in an object store: training.output_dir is then the folder of this
  /// machine's that the run works in. Else null.
  std::unique_ptr<checkpoint::ObjectStoreRun> stored;
  std::unique_ptr<parallel::ParallelGroups> axes;
  std::unique_ptr<parallel::ParallelGroups>
      evaluation_axes;  // of unlearning's measures; null: not yet asked
  std::unique_ptr<parallel::ParallelModel> model;
  std::optional<UntouchedWeights> untouched;          // nothing: all of the model is run
  std::shared_ptr<const model::Adapters> adapters;    // what of it is trained; null: itself
  std::unique_ptr<AnswerReference> answer_reference;  // of answers; else null
  std::unique_ptr<optim::Schedule> schedule;
  optim::ScheduleOptions schedule_options;  // that it was made of
  std::vector<RateAct> rate_acts;           // so far, by step
  std::vector<RateAct> acts_to_come;        // of the run that is resumed, after its checkpoint
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<monitor::Monitor> monitor;      // rank 0's; null on the others
  std::unique_ptr<checkpoint::AsyncSaver> saver;  // null: saves are waited for
  int64_t snapshot_bytes = 0;                     // of host memory, that it copies a state to
  std::unique_ptr<checkpoint::InMemoryCheckpoint> kept;  // null: steps are not kept in memory
  int64_t global_batch = 0;                              // sequences of a step, all ranks
  double flops_per_token = 0;
  Progress progress;
  BestRule best_rule;
  Best best;
  bool drops_out = true;  // in training, as the model's config.json says
  /// Of unlearning: says which positions have distributions for targets. Else empty.
  Preparation mark_targets;
  std::optional<RetainWeight> retain_weight;  // of PDU
  EpochRows epoch_rows;  // of a classifier, of the epoch so far; all ranks alike
  /// Of a classifier, what its last evaluation found.
  std::optional<Judgement> judgement;
  Classified classified;

  double temperature = 1;  // that a classifier's logits are divided by (task.calibration)
  /// Whether rows are given labels, by a head or as texts.
  bool is_classifier() const;
  /// The labels by which answers are judged.
  const model::HeadSpec& judged_head() const {
    return written_labels ? *written_labels : task.head;
  }
  /// Evaluates and logs: prefix and suffix are the names' (eval_loss_mm). Every rank must call.
  Evaluation evaluate(
      const data::SequenceView& sequences,
      const std::string& prefix,
      RankContext& rank_context,
      const std::string& suffix = "");
  void report_evaluation(
      const Evaluation& result, const std::string& prefix, const std::string& suffix = "");
  /// Evaluates and logs, and nothing else follows from it. Every rank must call.
  Evaluation evaluate_by_the_way(RankContext& rank_context);
  /// Evaluates on data.validation, or of unlearning by its metrics, keeps the best after a step,
  /// and tells the schedule. Every rank must call.
  void evaluate_training(RankContext& rank_context);
};

/// Opens what a run is made from: the model's description, the tokenizer, the data and its task;
/// what is known before anything large is loaded. Every rank must call.
std::unique_ptr<Job> open_job(
    const config::Config& config, const std::string& resolved, RankContext& rank_context);

/// Builds the rest, from the files or from a checkpoint where one is to be resumed. Every rank must
/// call.
void build_job(Job& job, RankContext& rank_context);

/// After the last step: closing evaluations, the results' files, the model in output_dir.
void finish_job(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
