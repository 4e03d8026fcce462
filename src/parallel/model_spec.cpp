#include "parallel/model_spec.h"

#include <map>
#include <utility>

#include "model/description.h"
#include "nn/initialize.h"

namespace lockstep::parallel {

ModelSpec::Fill fill_at_random(const model::ModelConfig& config, uint64_t seed) {
  return fill_at_random(model::parameters_by_name(config), seed);
}

ModelSpec::Fill fill_at_random(std::map<std::string, model::ParameterSpec> specs, uint64_t seed) {
  return [specs = std::move(specs), seed](
             const std::string& name,
             const ShardedParameter& parameter,
             int64_t begin,
             const Tensor& values) {
    const Tensor flat = values.view({-1});
    mesh::visit_runs(
        parameter.cut,
        parameter.shape,
        begin,
        begin + flat.numel(),
        [&](int64_t local, int64_t whole, int64_t count) {
          nn::fill_initial(flat.narrow(0, local - begin, count), specs.at(name), seed, whole);
        });
  };
}

}  // namespace lockstep::parallel
