// Linear kernels that queue their weight gradients.
#include "parallel/autograd/deferred.h"

#include <ATen/core/grad_mode.h>

namespace lockstep::parallel {
namespace {

/// Wraps a kernel so that its weight gradients are queued.
class DeferredProduct final : public nn::LinearKernel {
 public:
  DeferredProduct(std::shared_ptr<nn::LinearKernel> product, std::shared_ptr<DeferredQueue> queue)
      : product_(std::move(product)),
        queue_(std::move(queue)) {}

  Tensor draw(const nn::ForwardContext& context) const override { return product_->draw(context); }
  Tensor forward(const Tensor& x, const Tensor& drawn) const override {
    if (!x.requires_grad() || !at::GradMode::is_enabled()) {
      return product_->forward(x, drawn);
    }
    return nn::multiply_in_halves(
        product_, x, drawn, [queue = queue_, product = product_.get()](std::function<void()> work) {
          queue->push(product, std::move(work));
        });
  }
  Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const override {
    return product_->input_gradient(y_gradient, drawn);
  }
  void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const override {
    product_->accumulate_weight_gradients(y_gradient, x, drawn);
  }
  bool is_trained() const override { return product_->is_trained(); }
  void visit_parameters(const nn::ParameterFunction& function) override {
    product_->visit_parameters(function);
  }
  Tensor take_bias() override { return product_->take_bias(); }
  std::shared_ptr<nn::Dropout>* input_dropout() override { return product_->input_dropout(); }
  void set_adapted(bool is_on) override { product_->set_adapted(is_on); }
  void set_sum_over_inputs(std::function<Tensor(const Tensor&)> sum) override {
    product_->set_sum_over_inputs(std::move(sum));
  }
  void set_largest_over(nn::Shared what, nn::Largest largest) override {
    product_->set_largest_over(what, std::move(largest));
  }
  void set_sum_over_copies(int64_t copies, std::function<Tensor(const Tensor&)> sum) override {
    product_->set_sum_over_copies(copies, std::move(sum));
  }

 private:
  std::shared_ptr<nn::LinearKernel> product_;
  std::shared_ptr<DeferredQueue> queue_;
};

}  // namespace

void DeferredQueue::push(const nn::LinearKernel* product, std::function<void()> work) {
  const auto [place, is_first] = places_.emplace(product, work_.size());
  if (is_first) {
    work_.push_back(std::move(work));
    return;
  }
  std::function<void()>& all = work_[place->second];
  all = [before = std::move(all), last = std::move(work)] {
    nn::hold_gradients(before);
    last();
  };
}

DeferredWork DeferredQueue::take() {
  places_.clear();
  return std::exchange(work_, {});
}

void defer_weight_gradients(nn::Linear& linear, const std::shared_ptr<DeferredQueue>& queue) {
  linear.product() = std::make_shared<DeferredProduct>(linear.product(), queue);
}

void defer_weight_gradients(nn::LanguageModel& model, const std::shared_ptr<DeferredQueue>& queue) {
  model.visit_slots(
      nn::each<nn::Linear>([&](const nn::SlotName& /*name*/, std::shared_ptr<nn::Linear>& linear) {
        defer_weight_gradients(*linear, queue);
      }));
}

}  // namespace lockstep::parallel
