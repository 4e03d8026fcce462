#include "parallel/pipeline/pipeline.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"

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

/// A part of a language model as a stage.
class LanguageModelStage final : public Stage {
 public:
  LanguageModelStage(nn::LanguageModel& model, Accumulation accumulation, bool defers)
      : model_(model),
        accumulation_(std::move(accumulation)),
        queue_(accumulation_.deferred),
        device_(device_of({&model})) {
    if (defers && queue_ == nullptr) {
      queue_ = std::make_shared<DeferredQueue>();
      defer_weight_gradients(model_, queue_);
    }
  }

  /// The step's micro-batches, and what its loss is multiplied by.
  void begin(std::span<const nn::ForwardInputs> micro_batches, double scale) {
    micro_batches_ = micro_batches;
    scale_ = scale;
    sums_ = at::zeros({kSums}, at::TensorOptions(device_).dtype(at::kDouble));
  }
  /// The losses' sum, or the statistics', of the micro-batches that went through since begin().
  const Tensor& sums() const { return sums_; }

  Tensors forward(int micro_batch, const Tensors& inputs) override {
    const nn::Context context =
        model_.make_context(micro_batches_[static_cast<size_t>(micro_batch)]);
    const Tensors x =
        model_.forward_blocks(model_.part().embedding ? model_.embed(context) : inputs, context);
    if (!model_.part().head) {
      return x;
    }
    if (!at::GradMode::is_enabled()) {
      sums_.add_(model_.head_statistics(x, context).to(device_));
      return {};
    }
    const Tensor loss = model_.head_loss(x, context);
    sums_.narrow(0, 0, 1).add_(loss.detach().to(device_, at::kDouble));
    return {loss * scale_};
  }
  Tensors parameters() override {
    Tensors result;
    model_.visit_parameters(
        [&](const std::string&, Tensor& parameter) { result.push_back(parameter); });
    return result;
  }
  void begin_accumulation(bool last) override { accumulation_.begin(last); }
  void end_accumulation() override { accumulation_.end(); }
  DeferredQueue* deferred() override { return queue_.get(); }

 private:
  static constexpr int64_t kSums = 3;
  nn::LanguageModel& model_;
  Accumulation accumulation_;
  std::shared_ptr<DeferredQueue> queue_;
  std::span<const nn::ForwardInputs> micro_batches_;
  double scale_ = 1;
  c10::Device device_;
  Tensor sums_;  // there, so that nobody waits for it
};

namespace {

/// What the shapes between stages follow from.
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

}  // namespace

Pipeline::Pipeline(
    const std::vector<nn::LanguageModel*>& parts,
    const std::vector<Accumulation>& accumulations,
    const PipelineOptions& options,
    comm::Communicator& group)
    : group_(group),
      schedules_(options, group.size()),
      mailbox_(std::make_unique<Mailbox>(group, device_of(parts), schedules_.rank_of_stage())) {
  for (size_t i = 0; i < parts.size(); ++i) {
    stages_.push_back(std::make_unique<LanguageModelStage>(
        *parts[i], accumulations[i], schedules_.splits_backward()));
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

Tensor Pipeline::forward_backward(std::span<const nn::ForwardInputs> micro_batches, double scale) {
  for (const auto& stage : stages_) {
    stage->begin(micro_batches, scale);
  }
  Executor& executor = executor_of(micro_batches.size());
  executor.set_observer(observer_);
  executor.run(signatures_of(micro_batches));
  return stages_.back()->sums().narrow(0, 0, 1);
}

Tensor Pipeline::statistics(std::span<const nn::ForwardInputs> batches) {
  const at::NoGradGuard no_grad;
  for (const auto& stage : stages_) {
    stage->begin(batches, 1);
  }
  if (!batches.empty()) {
    executor_of(batches.size()).run(signatures_of(batches));
  }
  return stages_.back()->sums().to(at::kCPU);
}

}  // namespace lockstep::parallel
