// Opens the data, reference models and evaluation of preference tuning, unlearning and
// classification.
#include "train/paired_data.h"

#include <utility>

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/core/cache_folder.h"
#include "model/description.h"
#include "train/batches/inputs.h"
#include "train/plan.h"
#include "train/tasks/generative.h"
#include "train/tasks/preference.h"
#include "train/tasks/unlearning.h"
#include "train/weights/initial_factors.h"

namespace lockstep::train {

void open_answers(Job& job, int64_t length, RankContext& rank_context) {
  const config::TrainingSection& training = job.config.training;
  const int64_t data_ranks = rank_context.configured_ranks() *
                             mesh_of(job.config.parallel, rank_context.size()).data /
                             rank_context.size();
  job.answers = open_preference_data(
      job.config,
      job.source.config,
      job.tokenizer,
      length,
      training.per_device_train_batch_size * training.gradient_accumulation_steps * data_ranks,
      rank_context.communicator);
  job.datasets = job.answers.rows;
  job.task.objective = preference_objective(job.config);
  job.drops_out = !job.config.preference.disable_dropout;
  if (trains_rewards(job.config.task)) {
    job.task.head = model::reward_head();
    // Saved with the model, because the last token of a padded row cannot be found without it.
    job.source.config.pad_token_id = padding_of_answers(job.source.config, *job.tokenizer);
  }
}

void open_written_labels(Job& job, int64_t length, RankContext& rank_context) {
  const config::Config config = config_of_rows(job.config);
  ClassifierData data = open_generative_data(
      config, job.source.config, job.tokenizer, length, rank_context.communicator, [&] {
        return read_labelled_data(config, job.source.config);
      });
  job.datasets = std::move(data.datasets);
  job.rows = std::move(data.rows);
  job.written_labels = std::move(data.head);
  job.written = std::move(data.written);
  job.task.objective = objective::cross_entropy(job.config.training.label_smoothing_factor);
}

Evaluation evaluate_classifier(
    Job& job, const data::SequenceView& rows, RankContext& rank_context) {
  const model::HeadSpec& head = job.judged_head();
  const int64_t batch_size = job.config.training.per_device_eval_batch_size;
  job.classified = job.written_labels
                       ? classify_written(
                             reader_of(*job.model, rank_context.device),
                             job.written,
                             rows,
                             batch_size,
                             *job.axes,
                             between_batches(job))
                       : classify(
                             [&](auto batches) { return job.model->class_scores(batches); },
                             rows,
                             std::ssize(head.labels),
                             batch_size,
                             *job.axes,
                             rank_context.device,
                             between_batches(job));
  job.classified.logits.div_(job.temperature);
  job.judgement = judge(job.classified.logits, {rows.classes(), rows.outputs()}, head, job.judging);
  Evaluation result;
  result.report = {job.judgement->loss, job.judgement->metrics};
  result.targets = job.judgement->rows;
  result.samples = rows.size();
  result.batches = job.classified.batches;
  result.seconds = job.classified.seconds;
  return result;
}

void calibrate(Job& job, RankContext& rank_context) {
  const data::SequenceView& rows = *job.datasets.validation;
  (void)evaluate_classifier(job, rows, rank_context);
  job.temperature = fit_temperature(job.classified.logits, rows.classes());
  if (rank_context.is_first()) {
    log_info("temperature: {:.5g}", job.temperature);
  }
}

void open_unlearning(Job& job, int64_t length, RankContext& rank_context) {
  const config::UnlearningSection& section = job.config.unlearning;
  UnlearningRows rows = open_unlearning_data(
      job.config, job.source.config, job.tokenizer, length, rank_context.communicator);
  job.datasets.train = job.answers.rows.train = std::move(rows.train);
  job.scored_rows = std::move(rows.scored);
  job.task.objective = unlearning_objective(section);
  if (const auto head = end_at_layer(job.config, job.source.config)) {
    job.task.head = *head;
    if (rank_context.is_first()) {
      log_info(
          "the model runs up to layer {} of {}, where its states are compared; later layers are "
          "saved unchanged",
          head->layers - 1,
          job.source.config.layers);
    }
  }
  if (config::method_of(section).levels) {
    job.retain_weight.emplace(section);
  }
  job.mark_targets = [&job](nn::ForwardInputs& inputs, const data::MicroBatch& batch) {
    mark_distributions(inputs, batch.lengths, job.config.unlearning, job.source.config.vocab_size);
    if (job.retain_weight) {
      job.retain_weight->mark(inputs.targets);
    }
  };
}

namespace {

std::vector<nn::ForwardInputs> all_on(
    std::span<const nn::ForwardInputs> batches, c10::Device device) {
  std::vector<nn::ForwardInputs> there;
  for (const nn::ForwardInputs& inputs : batches) {
    there.push_back(to_device(inputs, device));
  }
  return there;
}

/// Throws Error (config) if the adapter's initial values were subtracted from the base weights. The
/// model without its adapter is then not the base model and cannot be the reference.
void check_reference(const model::Adapters& adapters) {
  if (take_from_base(adapters.config)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "lora.init_lora_weights: with {}, the model without its adapter is not the base model, "
            "which this method needs as reference",
            adapters.config.init_lora_weights),
        "set lora.init_lora_weights=true, or merge the adapter first (lockstep export --merge)");
  }
}

std::shared_ptr<objective::Reference> frozen_reference(
    parallel::ParallelModel& model,
    parallel::ModelSpec spec,
    const parallel::Plan& plan,
    parallel::ParallelGroups& axes) {
  const c10::Device device = spec.device;
  if (spec.adapters != nullptr) {
    check_reference(*spec.adapters);
    return std::make_shared<objective::FrozenModel>([&model, device](auto batches) {
      const at::NoGradGuard no_gradient;
      model.set_adapters(false);
      objective::HeadStates states = model.head_states(all_on(batches, device));
      model.set_adapters(true);
      return states;
    });
  }
  spec.objective = objective::cross_entropy();
  const std::shared_ptr second = parallel::evaluation_model(spec, plan, axes);
  return std::make_shared<objective::FrozenModel>([second, device](auto batches) {
    const at::NoGradGuard no_gradient;
    return second->head_states(all_on(batches, device));
  });
}

}  // namespace

std::shared_ptr<objective::Reference> unlearning_reference(
    const config::Config& config,
    parallel::ParallelModel& model,
    parallel::ModelSpec spec,
    const parallel::Plan& plan,
    parallel::ParallelGroups& axes) {
  const bool steers = spec.config.head.gives_states();
  const int64_t width = spec.config.hidden_size;
  auto reference = needs_distributions(config.unlearning)
                       ? frozen_reference(model, std::move(spec), plan, axes)
                       : nullptr;
  return steers ? std::make_shared<objective::Steered>(
                      std::move(reference), steering_target(config, width))
                : std::move(reference);
}

void follow_retain_loss(
    Job& job, const parallel::StepResult& result, bool epoch_ends, RankContext& rank_context) {
  if (!job.retain_weight) {
    return;
  }
  const int64_t epochs = job.progress.sampler.epoch;
  if (job.retain_weight->follows_steps(epochs - (epoch_ends ? 1 : 0))) {
    Evaluation step;
    step.report = job.model->objective().report(result.sums);
    job.retain_weight->follow(step.metric("retain_loss"));
  }
  if (epoch_ends && job.retain_weight->follows_epochs(epochs)) {
    const auto prepare = [&job](nn::ForwardInputs& inputs, const data::MicroBatch& batch) {
      job.mark_targets(inputs, batch);
      if (job.task.reference != nullptr) {
        job.task.reference->refer({&inputs, 1});
      }
    };
    const Evaluation all = train::evaluate(
        [&](std::span<const nn::ForwardInputs> batches) { return job.model->statistics(batches); },
        job.model->objective(),
        *job.datasets.train,
        job.config.training.per_device_train_batch_size,
        *job.axes,
        rank_context.device,
        nullptr,
        prepare);
    job.retain_weight->follow(all.metric("retain_loss"));
  }
}

std::optional<UntouchedWeights> untouched_weights(const Job& job, ModelRequest request) {
  if (!job.task.head.gives_states() || job.adapters != nullptr) {
    return std::nullopt;
  }
  request.task = {};
  request.freeze.clear();
  parallel::ModelSpec whole = model_spec(job.source, request);
  UntouchedWeights result{whole.config, std::move(whole.fill), {}};
  const auto run = model::parameters_by_name(model::with_head(whole.config, job.task.head));
  for (model::ParameterSpec& parameter : model::parameters_of(whole.config)) {
    if (!run.contains(parameter.name)) {
      result.parameters.push_back(std::move(parameter));
    }
  }
  return result;
}

void score_answers(Job& job, RankContext& rank_context) {
  const config::Config& config = job.config;
  std::unique_ptr<objective::StoredScores> scores;
  const bool forgets = unlearns(config.task);
  if (forgets ? job.scored_rows != nullptr : needs_reference(config)) {
    const auto sets = forgets ? std::vector{job.scored_rows} : job.answers.all();
    const std::string key = on_first_rank(rank_context.communicator, [&] {
      return reference_key(
          config, job.source, forgets ? WithAdapter::kNo : WithAdapter::kYes, sets);
    });
    const auto& batch_size = forgets ? config.unlearning.reference_batch_size
                                     : config.preference.precompute_ref_batch_size;
    if (forgets && job.adapters != nullptr) {
      check_reference(*job.adapters);
      job.model->set_adapters(false);  // the reference of a resumed adapter is the base model
    }
    scores = score_reference(
        *job.model,
        sets,
        batch_size.value_or(config.training.per_device_eval_batch_size),
        config::cache_folder(config.data.cache_dir),
        key,
        rank_context);
    if (forgets && job.adapters != nullptr) {
      job.model->set_adapters(true);
    }
  }
  job.answer_reference = std::make_unique<AnswerReference>(
      *job.model, job.answers, std::move(scores), rank_context.device);
}

}  // namespace lockstep::train
