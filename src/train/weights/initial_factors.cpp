// PiSSA, OLoRA and orthogonal initialization of adapters.
#include "train/weights/initial_factors.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "nn/initialize.h"
#include "train/weights/adapter_values.h"

namespace lockstep::train {
namespace {

using at::Tensor;

struct Factors {
  Tensor a, b;  // [r, in], [out, r]
};

/// Returns the first r singular vectors. Each factor is multiplied by the square roots of the
/// singular values. Signs are normalized so that the largest element of each vector is positive,
/// independent of the SVD implementation.
Factors principal(const Tensor& weight, int64_t rank, double scale) {
  const auto [u, values, v] = at::linalg_svd(weight, /*full_matrices=*/false);
  const Tensor roots = (values.narrow(0, 0, rank) / scale).sqrt();
  Tensor b = u.narrow(1, 0, rank);
  const Tensor signs = b.gather(0, b.abs().argmax(0, /*keepdim=*/true)).sign().squeeze(0);
  b = b * (roots * signs);
  return {v.narrow(0, 0, rank) * (roots * signs).unsqueeze(1), b};
}

/// Returns the first r columns of Q and rows of R, with signs chosen so that the diagonal of R is
/// positive.
Factors triangular(const Tensor& weight, int64_t rank) {
  const auto [q, r] = at::linalg_qr(weight);
  const Tensor signs = r.diagonal().narrow(0, 0, rank).sgn();
  const Tensor given = at::where(signs == 0, at::ones_like(signs), signs);
  return {r.narrow(0, 0, rank) * given.unsqueeze(1), q.narrow(1, 0, rank) * given};
}

Tensor normal(const std::string& name, std::vector<int64_t> shape, uint64_t seed) {
  model::ParameterSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.init = {model::Initialization::Kind::kNormal, 1, -1};
  const Tensor drawn = at::empty(spec.shape, at::kFloat);
  nn::fill_initial(drawn, spec, seed);
  return drawn;
}

/// Uses half of the rows of an orthogonal matrix for A and the other half for B. B A is then 0
/// although both are nonzero.
Factors orthogonal(
    const std::string& prefix, int64_t in, int64_t out, int64_t rank, uint64_t seed) {
  const Tensor q = std::get<0>(at::linalg_qr(normal(prefix + ".orthogonal", {rank, rank}, seed)));
  const Tensor odd = q.slice(0, 0, rank, 2), even = q.slice(0, 1, rank, 2);
  const Tensor of_a = normal(prefix + ".orthogonal_A", {in, rank / 2}, seed);
  const Tensor of_b = normal(prefix + ".orthogonal_B", {out, rank / 2}, seed);
  return {of_a.mm(odd).t() / 10, of_b.mm(even) / 10};
}

std::vector<std::pair<model::LayerSpec, model::Adapter>> adapted_linears(
    const model::Adapters& adapters, const model::ModelConfig& config) {
  std::vector<std::pair<model::LayerSpec, model::Adapter>> linears;
  for (model::LayerSpec layer : model::describe(config)) {
    const auto found = adapters.of_layers.find(layer.prefix);
    if (layer.kind == model::LayerKind::kLinear && found != adapters.of_layers.end()) {
      linears.emplace_back(std::move(layer), found->second);
    }
  }
  return linears;
}

class InitialFactors {
 public:
  InitialFactors(
      const model::Adapters& adapters,
      const model::ModelConfig& config,
      parallel::ModelSpec::Fill base,
      uint64_t seed)
      : init_(adapters.config.init_lora_weights),
        takes_(take_from_base(adapters.config)),
        base_(std::move(base)),
        seed_(seed) {
    for (auto& [layer, adapter] : adapted_linears(adapters, config)) {
      const auto linear = std::make_shared<Linear>(layer, adapter);
      for (size_t i = 0; i < 2; ++i) {
        factors_[linear->adapter.parameters.at(i).name] = {linear, i == 0};
      }
      if (takes_) {
        weights_[layer.weight().name] = linear;
      }
    }
  }

  void operator()(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const Tensor& values) const {
    const at::NoGradGuard no_gradient;
    if (const auto factor = factors_.find(name); factor != factors_.end()) {
      const Factors& first = factors_of(*factor->second.first);
      copy_part(factor->second.second ? first.a : first.b, parameter, begin, values);
    } else if (const auto weight = weights_.find(name); weight != weights_.end()) {
      copy_part(rest_of(*weight->second), parameter, begin, values);
    } else {
      base_(name, parameter, begin, values);
    }
  }

 private:
  struct Linear {
    Linear(model::LayerSpec of, model::Adapter with)
        : layer(std::move(of)),
          adapter(std::move(with)) {}
    model::LayerSpec layer;
    model::Adapter adapter;
    std::once_flag is_made;  // ranks may be threads of one process
    Factors factors;
  };

  Tensor weight_of(const Linear& linear) const {
    const model::ParameterSpec& weight = linear.layer.weight();
    Tensor values = at::empty(weight.shape, at::kFloat);
    base_(weight.name, {weight.shape, {}}, 0, values);
    return values;
  }

  const Factors& factors_of(Linear& linear) const {
    std::call_once(linear.is_made, [&] {
      const model::Adapter& adapter = linear.adapter;
      const auto rows = [&] {
        const Tensor weight = weight_of(linear);
        return linear.layer.has_inputs_first() ? weight.t() : weight;  // [out, in]
      };
      Factors made = init_ == "pissa"   ? principal(rows(), adapter.rank, adapter.scale)
                     : init_ == "olora" ? triangular(rows(), adapter.rank)
                                        : orthogonal(
                                              linear.layer.prefix,
                                              adapter.parameters[0].shape[1],
                                              adapter.parameters[1].shape[0],
                                              adapter.rank,
                                              seed_);
      linear.factors = {made.a.contiguous(), made.b.contiguous()};
    });
    return linear.factors;
  }

  /// Returns W - s B A in the layout of the file.
  Tensor rest_of(Linear& linear) const {
    const Factors& first = factors_of(linear);
    Tensor weight = weight_of(linear);
    (linear.layer.has_inputs_first() ? weight.t() : weight)
        .sub_(first.b.mm(first.a), linear.adapter.scale);
    return weight;
  }

  std::string init_;
  bool takes_;
  parallel::ModelSpec::Fill base_;
  uint64_t seed_;
  std::map<std::string, std::pair<std::shared_ptr<Linear>, bool>> factors_;  // true: A, false: B
  std::map<std::string, std::shared_ptr<Linear>>
      weights_;  // weights that the factors are subtracted from
};

}  // namespace

bool take_from_base(const model::LoraConfig& config) {
  return config.init_lora_weights == "pissa" || config.init_lora_weights == "olora";
}

void check_taken_base(const model::LoraConfig& config, const model::ModelSource& base) {
  if (take_from_base(config) && base.has_weights && base.config.quantization) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "lora.init_lora_weights: {} subtracts the initial factors from the base weights, but "
            "those of {} are packed",
            config.init_lora_weights,
            base.name),
        "use the unpacked model and set quantization.bits: the remaining weights are then packed");
  }
}

std::set<std::string> factors_made_together(
    const model::Adapters& adapters, const model::ModelConfig& config) {
  std::set<std::string> names;
  if (take_from_base(adapters.config) || adapters.config.init_lora_weights == "orthogonal") {
    for (const auto& [layer, adapter] : adapted_linears(adapters, config)) {
      names.insert({adapter.parameters.at(0).name, adapter.parameters.at(1).name});
    }
  }
  return names;
}

parallel::ModelSpec::Fill with_initial_factors(
    const model::Adapters& adapters,
    const model::ModelConfig& config,
    parallel::ModelSpec::Fill base,
    uint64_t seed) {
  if (factors_made_together(adapters, config).empty()) {
    return base;
  }
  const auto made = std::make_shared<const InitialFactors>(adapters, config, std::move(base), seed);
  return [made](
             const std::string& name,
             const parallel::ShardedParameter& parameter,
             int64_t begin,
             const Tensor& values) { (*made)(name, parameter, begin, values); };
}

}  // namespace lockstep::train
