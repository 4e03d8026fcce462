// Runs the pipeline of a language model.
#include "parallel/pipeline/pipeline.h"

#include <numeric>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "objective/reference.h"
#include "objective/run_head.h"

namespace lockstep::parallel {
namespace {

c10::Device device_of(const std::vector<nn::LanguageModel*>& parts) {
  c10::Device device(c10::kCPU);
  for (nn::LanguageModel* part : parts) {
    part->visit_parameters(
        [&](const std::string&, Tensor& parameter) { device = parameter.device(); });
  }
  return device;
}

}  // namespace

/// A model part as a pipeline stage.
class LanguageModelStage final : public Stage {
 public:
  LanguageModelStage(
      nn::LanguageModel& model, Accumulation accumulation, comm::Communicator* sequence)
      : model_(model),
        accumulation_(std::move(accumulation)),
        device_(device_of({&model})) {
    if (sequence != nullptr && sequence->size() > 1) {
      parts_.sum = [sequence](const Tensor& rows) { sequence->all_reduce(rows).wait(); };
      parts_.is_first = sequence->rank() == 0;
    }
  }

  /// Sets the micro-batches of the step and the factor of the loss.
  void begin(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Objective& objective,
      const objective::Counts& step,
      double scale) {
    micro_batches_ = micro_batches;
    objective_ = &objective;
    step_ = step;
    scale_ = scale;
    sums_ = at::zeros({objective.sums()}, at::TensorOptions(device_).dtype(at::kDouble));
  }
  /// Returns the objective's sums over the micro-batches since begin().
  const Tensor& sums() const { return sums_; }

  Tensors forward(int micro_batch, const Tensors& inputs) override {
    const nn::Context context =
        model_.make_context(micro_batches_[static_cast<size_t>(micro_batch)]);
    const Tensors x =
        model_.forward_blocks(model_.part().embedding ? model_.embed(context) : inputs, context);
    if (!model_.part().head) {
      return x;
    }
    const Tensors results = objective::run_head(model_, x, context, *objective_, step_, parts_);
    const Tensor& sums = results.back();
    sums_.narrow(0, 0, sums.numel()).add_(sums.to(device_));
    return at::GradMode::is_enabled() ? Tensors{results.front() * scale_} : Tensors{};
  }
  Tensors parameters() override {
    Tensors result;
    model_.visit_parameters(
        [&](const std::string&, Tensor& parameter) { result.push_back(parameter); });
    return result;
  }
  void begin_accumulation(bool last) override { accumulation_.begin(last); }
  void end_accumulation() override { accumulation_.end(); }
  DeferredQueue* deferred() override { return accumulation_.deferred.get(); }

 private:
  nn::LanguageModel& model_;
  const objective::Objective* objective_ = nullptr;
  objective::RowParts parts_;
  Accumulation accumulation_;
  std::span<const nn::ForwardInputs> micro_batches_;
  objective::Counts step_;
  double scale_ = 1;
  c10::Device device_;
  Tensor sums_;  // on the device, so that the host does not have to wait
};

namespace {

/// Returns identifiers of the micro-batches' shapes, which determine the message layouts.
std::vector<uint64_t> signatures_of(std::span<const nn::ForwardInputs> micro_batches) {
  std::vector<uint64_t> signatures;
  for (const nn::ForwardInputs& inputs : micro_batches) {
    const auto rows = static_cast<uint64_t>(inputs.ids.size(0));
    const auto length = static_cast<uint64_t>(inputs.ids.size(1));
    const auto source = static_cast<uint64_t>(inputs.source.defined() ? inputs.source.size(1) : 0);
    const uint64_t of_ids = rows << 32 | length << 1 | (at::GradMode::is_enabled() ? 1 : 0);
    signatures.push_back(derive_key(of_ids, source));
  }
  return signatures;
}

std::vector<nn::ForwardInputs> without_randomness(std::span<const nn::ForwardInputs> batches) {
  std::vector<nn::ForwardInputs> own(batches.begin(), batches.end());
  for (nn::ForwardInputs& inputs : own) {
    inputs.training = false;
    inputs.embedding_noise = 0;
  }
  return own;
}

}  // namespace

Pipeline::Pipeline(
    const std::vector<nn::LanguageModel*>& parts,
    const std::vector<Accumulation>& accumulations,
    const PipelineOptions& options,
    comm::Communicator& group,
    LossOptions loss)
    : group_(group),
      loss_(std::move(loss)),
      schedules_(options, group.size()),
      mailbox_(std::make_unique<Mailbox>(group, device_of(parts), schedules_.rank_of_stage())) {
  for (size_t i = 0; i < parts.size(); ++i) {
    stages_.push_back(
        std::make_unique<LanguageModelStage>(*parts[i], accumulations[i], loss_.sequence));
  }
}

Pipeline::~Pipeline() = default;

std::vector<Stage*> Pipeline::stages() const {
  std::vector<Stage*> result;
  for (const auto& stage : stages_) {
    result.push_back(stage.get());
  }
  return result;
}

Executor& Pipeline::executor_of(size_t micro_batches) {
  const bool trains = at::GradMode::is_enabled();
  std::unique_ptr<Executor>& executor = (trains ? executors_ : evaluators_)[micro_batches];
  if (executor == nullptr) {
    const auto count = static_cast<int>(micro_batches);
    executor = std::make_unique<Executor>(
        trains ? schedules_.of(count) : schedules_.forward_only(count),
        stages(),
        group_,
        *mailbox_);
  }
  return *executor;
}

Tensor Pipeline::forward_backward(
    std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step, double scale) {
  for (const auto& stage : stages_) {
    stage->begin(micro_batches, objective(), step, scale);
  }
  Executor& executor = executor_of(micro_batches.size());
  executor.set_observer(observer_);
  executor.run(signatures_of(micro_batches));
  return stages_.back()->sums();
}

std::vector<Tensor> Pipeline::row_scores(std::span<const nn::ForwardInputs> batches) {
  const objective::ScoreSink kept(objective::Needs::kRowScores);
  (void)statistics(without_randomness(batches), kept);
  return of_all_stages(kept.rows(), batches, {}, at::kDouble);
}

std::vector<Tensor> Pipeline::class_scores(
    std::span<const nn::ForwardInputs> batches, int64_t classes) {
  const objective::ScoreSink kept(objective::Needs::kClassScores);
  (void)statistics(without_randomness(batches), kept);
  return of_all_stages(kept.rows(), batches, {classes}, at::kFloat);
}

std::vector<Tensor> Pipeline::next_tokens(std::span<const nn::ForwardInputs> batches) {
  const objective::ScoreSink kept(objective::Needs::kNextToken);
  (void)statistics(without_randomness(batches), kept);
  return of_all_stages(kept.rows(), batches, {}, at::kDouble);
}

objective::HeadStates Pipeline::head_states(std::span<const nn::ForwardInputs> batches) {
  const objective::HeadStateSink kept;
  (void)statistics(without_randomness(batches), kept);
  return kept.states();
}

std::vector<Tensor> Pipeline::of_all_stages(
    const std::vector<Tensor>& kept,
    std::span<const nn::ForwardInputs> batches,
    const std::vector<int64_t>& row,
    at::ScalarType type) {
  std::vector<int64_t> rows;
  for (const nn::ForwardInputs& inputs : batches) {
    rows.push_back(inputs.targets.rows());
  }
  std::vector<int64_t> shape{std::accumulate(rows.begin(), rows.end(), int64_t{0})};
  shape.insert(shape.end(), row.begin(), row.end());
  const Tensor all = kept.empty() ? at::zeros(shape, type) : at::cat(kept);
  group_.all_reduce(all).wait();
  return all.split_with_sizes(rows);
}

Tensor Pipeline::statistics(
    std::span<const nn::ForwardInputs> batches, const objective::Objective& objective) {
  const at::NoGradGuard no_grad;
  for (const auto& stage : stages_) {
    stage->begin(batches, objective, {}, 1);
  }
  if (!batches.empty()) {
    executor_of(batches.size()).run(signatures_of(batches));
  }
  return stages_.back()->sums().to(at::kCPU);
}

}  // namespace lockstep::parallel
