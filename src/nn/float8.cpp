// Linear kernel for float8, and its autograd node.
#include "nn/float8.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// State of the backward pass other than x, stored in a capsule.
struct HeldFloat8 : torch::CustomClassHolder {
  explicit HeldFloat8(std::shared_ptr<const Float8LinearKernel> product)
      : product(std::move(product)) {}
  std::shared_ptr<const Float8LinearKernel> product;
};

/// Float8 product as one autograd node. Saves x unrounded, because other nodes save the same
/// tensor.
struct MultiplyFloat8 : torch::autograd::Function<MultiplyFloat8> {
  static Tensor forward(
      AutogradContext* context,
      const Tensor& x,
      const Tensor& weight,
      const std::optional<Tensor>& bias,
      c10::intrusive_ptr<HeldFloat8> held) {
    if (weight.requires_grad()) {
      context->save_for_backward({x});
    }
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    context->saved_data["has_bias"] = bias.has_value();
    return held->product->multiply(x);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto held =
        c10::static_intrusive_pointer_cast<HeldFloat8>(context->saved_data["held"].toCapsule());
    const Tensor& gradient = gradients[0];
    tensor_list result(4);
    if (context->needs_input_grad(0)) {
      result[0] = held->product->input_gradient(gradient, {});
    }
    if (context->needs_input_grad(1)) {
      result[1] = held->product->weight_gradient(gradient, context->get_saved_variables()[0]);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = gradient.flatten(0, -2).sum(0);
    }
    return result;
  }
};

/// [..., k] -> [n, k]
Tensor flat_rows(const Tensor& x) {
  return x.reshape({x.numel() / x.size(-1), x.size(-1)});
}

Tensor shaped_as(const Tensor& rows, const Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = rows.size(1);
  return rows.view(sizes);
}

Tensor agreed(Tensor largest, const Largest& over) {
  return over ? over(largest) : std::move(largest);
}

}  // namespace

Float8LinearKernel::Float8LinearKernel(
    ops::SharedScale shared,
    WeightLayout layout,
    Tensor weight,
    Tensor bias,
    std::shared_ptr<LastInput> last)
    : shared_(shared),
      layout_(layout),
      weight_(std::move(weight)),
      bias_(std::move(bias)),
      last_(std::move(last)) {}

ops::Float8Rows Float8LinearKernel::rounded(const Tensor& x, ops::Float8Order order) const {
  if (last_ == nullptr || x.is_inference()) {
    return rounded_anew(x, order);
  }
  const bool is_agreed = over_inputs_ != nullptr;
  const auto alive = last_->x.lock();
  if (alive.get() != x.unsafeGetTensorImpl() || last_->version != x._version() ||
      last_->order != order || last_->is_agreed != is_agreed) {
    *last_ = {};  // frees the old rows before new ones are allocated
    last_->rows = rounded_anew(x, order);
    last_->x =
        c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(x.getIntrusivePtr());
    last_->version = x._version();
    last_->order = order;
    last_->is_agreed = is_agreed;
  }
  return last_->rows;
}

ops::Float8Rows Float8LinearKernel::rounded_anew(const Tensor& x, ops::Float8Order order) const {
  const ops::FactoredRows rows{flat_rows(x.detach())};
  Tensor largest = agreed(ops::largest_magnitudes(rows, shared_), over_inputs_);
  if (shared_ == ops::SharedScale::kAll) {
    largest = agreed(std::move(largest), over_rows_);
  }
  return ops::to_float8(rows, largest, at::kFloat8_e4m3fn, order);
}

ops::Float8Rows Float8LinearKernel::rounded_weight(ops::Float8Order order) const {
  const Tensor weight = weight_.detach();
  const ops::FactoredRows rows{is_out_in() ? weight : weight.t()};
  Tensor largest = agreed(ops::largest_magnitudes(rows, shared_), over_inputs_);
  if (shared_ == ops::SharedScale::kAll) {
    largest = agreed(std::move(largest), over_outputs_);
  }
  return ops::to_float8(rows, largest, at::kFloat8_e4m3fn, order);
}

Tensor Float8LinearKernel::multiply(const Tensor& x) const {
  const at::NoGradGuard no_gradient;
  const Tensor y = ops::float8_product(rounded(x), rounded_weight(), weight_.scalar_type());
  return shaped_as(bias_.defined() ? y.add_(bias_.detach()) : y, x);
}

Tensor Float8LinearKernel::forward(const Tensor& x, const Tensor& /*drawn*/) const {
  const auto bias = bias_.defined() ? std::optional(bias_) : std::nullopt;
  return MultiplyFloat8::apply(
      x, weight_, bias, c10::make_intrusive<HeldFloat8>(shared_from_this()));
}

/// Returns the whole gradient [n, out]. Each replica rounds the whole gradient instead of its own
/// part, because a sum of separately rounded parts differs from the rounded sum. The result is then
/// divided by the number of replicas.
Tensor Float8LinearKernel::whole_gradient(const Tensor& y_gradient) const {
  const Tensor rows = flat_rows(y_gradient);
  return copies_ > 1 ? sum_over_copies_(rows) : rows;
}

Tensor Float8LinearKernel::share(Tensor made) const {
  return copies_ > 1 ? made.div_(copies_) : std::move(made);
}

ops::Float8Rows Float8LinearKernel::rounded_gradient(const ops::FactoredRows& rows) const {
  return ops::to_float8(rows, ops::largest_magnitudes(rows, shared_), at::kFloat8_e5m2);
}

Tensor Float8LinearKernel::input_gradient(const Tensor& y_gradient, const Tensor& /*drawn*/) const {
  const at::NoGradGuard no_gradient;
  const ops::Float8Rows weight = rounded_weight(ops::Float8Order::kColumns);
  const ops::Float8Rows gradient =  // [n, out]
      rounded_gradient({whole_gradient(y_gradient), weight.scales.t()});
  return shaped_as(
      share(
          ops::float8_product(gradient, ops::transposed_values(weight), y_gradient.scalar_type())),
      y_gradient);
}

Tensor Float8LinearKernel::weight_gradient(const Tensor& y_gradient, const Tensor& x) const {
  const at::NoGradGuard no_gradient;
  const ops::Float8Rows input = rounded(x, ops::Float8Order::kColumns);
  const ops::Float8Rows gradient =  // [out, n]
      rounded_gradient({whole_gradient(y_gradient).t(), input.scales.t()});
  const Tensor made =
      share(ops::float8_product(gradient, ops::transposed_values(input), weight_.scalar_type()));
  return is_out_in() ? made : made.t().contiguous();
}

void Float8LinearKernel::accumulate_weight_gradients(
    const Tensor& y_gradient, const Tensor& x, const Tensor& /*drawn*/) const {
  if (weight_.requires_grad()) {
    accumulate_gradient(weight_, weight_gradient(y_gradient, x));
  }
  if (bias_.defined() && bias_.requires_grad()) {
    accumulate_gradient(bias_, y_gradient.flatten(0, -2).sum(0));
  }
}

bool Float8LinearKernel::is_trained() const {
  return weight_.requires_grad() || (bias_.defined() && bias_.requires_grad());
}

void Float8LinearKernel::visit_parameters(const ParameterFunction& function) {
  function({"weight", weight_, is_out_in() ? 0 : 1, is_out_in() ? 1 : 0});
  function({"bias", bias_, 0, -1});
}

Tensor Float8LinearKernel::take_bias() {
  return std::exchange(bias_, Tensor());
}

Tensor Float8LinearKernel::matrix_rows(int64_t first, int64_t count) const {
  const Tensor weight = weight_.detach();
  return (is_out_in() ? weight : weight.t()).narrow(0, first, count);
}

void Float8LinearKernel::set_largest_over(Shared what, Largest largest) {
  (what == Shared::kInputs    ? over_inputs_
   : what == Shared::kOutputs ? over_outputs_
                              : over_rows_) = std::move(largest);
}

void Float8LinearKernel::set_sum_over_copies(
    int64_t copies, std::function<Tensor(const Tensor&)> sum) {
  copies_ = copies;
  sum_over_copies_ = std::move(sum);
}

void round_linears(LanguageModel& model, const model::Float8& float8) {
  const std::set<std::string> rounded = model::float8_linears(float8, model.config());
  const auto shared = float8.scaling == model::Float8::Scaling::kRow ? ops::SharedScale::kRow
                                                                     : ops::SharedScale::kAll;
  const auto last = std::make_shared<LastInput>();
  model.visit_slots(each<Linear>([&](const SlotName& name, std::shared_ptr<Linear>& linear) {
    if (!rounded.contains(name.prefix)) {
      return;
    }
    std::shared_ptr<LinearKernel>& product = linear->product();
    product->visit_parameters([&](const Parameter& parameter) {
      if (parameter.packed != nullptr) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format(
                "precision.fp8: the weights of {} are quantized, and quantized weights do not "
                "support float8 matrix products",
                name.prefix),
            "remove precision.fp8, or train a model with 16-bit weights");
      }
    });
    Tensor weight;
    WeightLayout layout = WeightLayout::kOutIn;
    product->visit_parameters([&](const Parameter& parameter) {
      if (parameter.name == "weight") {
        weight = parameter.value;
        layout = parameter.out == 0 ? WeightLayout::kOutIn : WeightLayout::kInOut;
      }
    });
    product =
        std::make_shared<Float8LinearKernel>(shared, layout, weight, product->take_bias(), last);
  }));
}

}  // namespace lockstep::nn
