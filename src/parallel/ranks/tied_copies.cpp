// Replica counts of tied weights on two pipeline stages.
#include "parallel/ranks/tied_copies.h"

namespace lockstep::parallel {

bool holds_tied_copy(const nn::LanguageModel& model) {
  return model.config().ties_head() && model.part().embedding != model.part().head;
}

bool is_tied_copy(const nn::LanguageModel& model, const std::string& parameter) {
  return holds_tied_copy(model) && model.shared_with_head.count(parameter) > 0;
}

void count_other_copy(const nn::LanguageModel& model, mesh::Cut& part) {
  part.copy += model.part().head ? part.copies : 0;
  part.copies *= 2;
}

void count_tied_copies(nn::LanguageModel& model, ShardedParameters& parameters) {
  model.visit_parameters([&](const std::string& name, at::Tensor& parameter) {
    if (is_tied_copy(model, name)) {
      const ShardedParameter whole{parameter.sizes().vec(), {}};
      count_other_copy(model, parameters.try_emplace(name, whole).first->second.cut);
    }
  });
}

}  // namespace lockstep::parallel
