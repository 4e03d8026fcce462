// Applies ZeRO to a language model.
#include "parallel/data/zero.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/format.h"
#include "parallel/ranks/tied_copies.h"

namespace lockstep::parallel {
namespace {

/// On a device, shards that start at multiples of 128 bytes allow the widest load instructions.
constexpr int64_t kDeviceAlignment = 64;

std::string unit_name(const nn::LanguageModel& model, size_t unit, size_t units) {
  const nn::ModelPart& part = model.part();
  if (part.embedding && unit == 0) {
    return "embedding";
  }
  if (part.head && unit + 1 == units) {
    return "head";
  }
  return fmt::format(
      "layer {}", part.first_layer + static_cast<int64_t>(unit) - (part.embedding ? 1 : 0));
}

/// Returns the model's parameters by unit, in order of use. Copies of a tied weight have their own
/// flat unit, so that their shards have the same layout on both stages. Without rules, weight decay
/// follows the model's description.
std::vector<ParameterUnit> units_of(
    nn::LanguageModel& model,
    const ShardedParameters& sharded,
    const std::function<optim::UpdateRule(const std::string&)>& rule_of,
    const std::function<bool(const std::string&)>& takes) {
  const auto rule = [&](const std::string& name) {
    optim::UpdateRule found;
    if (!model.specs.at(name).decays) {
      found.weight_decay = 0;
    }
    return rule_of ? rule_of(name) : found;
  };
  std::map<std::string, Tensor> tensors;
  std::map<std::string, int64_t> packed;
  model.visit_slots(nn::each_layer([&](const nn::SlotName& slot, nn::Layer& layer) {
    layer.visit_parameters([&](const nn::Parameter& parameter) {
      if (!parameter.value.defined()) {
        return;
      }
      const std::string name = slot.parameter(parameter.name);
      tensors.emplace(name, parameter.value);
      if (parameter.packed != nullptr) {
        packed.emplace(name, parameter.packed->row_count() * parameter.packed->columns.size());
      }
    });
  }));
  std::vector<ParameterUnit> units;
  const auto names_of_units = model.units();
  for (const std::vector<std::string>& names : names_of_units) {
    ParameterUnit unit{unit_name(model, units.size(), names_of_units.size()), {}};
    for (const std::string& name : names) {
      if (takes && !takes(name)) {
        continue;
      }
      const auto part = sharded.find(name);
      const auto weights = packed.find(name);
      unit.parameters.push_back(
          {name,
           tensors.at(name),
           rule(name),
           is_tied_copy(model, name),
           part == sharded.end() ? nullptr : part->second.summed_over,
           weights == packed.end() ? 0 : weights->second});
    }
    units.push_back(std::move(unit));
  }
  if (model.part().embedding) {
    // The backward pass does not read embedding tables, but it reads a norm or adapter factors in
    // the same unit.
    bool has_adapters = false;
    model.visit_slots([&](const nn::SlotName& /*name*/, const nn::Slot& slot) {
      const auto* tokens = slot.as<nn::TokenEmbedding>();
      const auto* sequence = slot.as<nn::SequenceTokens>();
      const auto* positions = slot.as<nn::PositionEmbedding>();
      has_adapters = has_adapters || (tokens != nullptr && (*tokens)->adapter != nullptr) ||
                     (sequence != nullptr && (*sequence)->adapter != nullptr) ||
                     (positions != nullptr && (*positions)->adapter != nullptr);
    });
    units.front().backward_reads_parameters = model.config().bidirectional || has_adapters;
    if (model.part().head && model.config().ties_head()) {
      units.back().also_uses.push_back(0);
    }
  }
  return units;
}

}  // namespace

std::unique_ptr<DataParallel> apply_zero(
    nn::LanguageModel& model,
    const ShardedParameters& parameters,
    comm::Communicator& group,
    DataParallelOptions options,
    const std::function<bool(const std::string& name)>& takes) {
  const std::vector<ParameterUnit> units = units_of(model, parameters, options.rule_of, takes);
  for (const ParameterUnit& unit : units) {
    for (const NamedParameter& p : unit.parameters) {
      options.alignment =
          std::max(options.alignment, p.tensor.is_cpu() ? int64_t{1} : kDeviceAlignment);
    }
  }
  options.counts_squares = true;
  if (!parameters.empty()) {
    // A parameter that is replicated over ranks of the model counts once in total.
    options.share_of_squares = [parameters](const std::string& name) {
      const auto found = parameters.find(name);
      return found == parameters.end() ? 1.0 : 1.0 / found->second.cut.copies;
    };
  }
  auto engine = std::make_unique<DataParallel>(group, units, options);
  model.around_unit =
      [engine = engine.get(), inner = model.around_unit](
          int64_t unit, const nn::Tensors& inputs, const nn::LanguageModel::UnitBody& body) {
        return engine->run_unit(static_cast<size_t>(unit), inputs, [&](const nn::Tensors& in) {
          return inner(unit, in, body);
        });
      };
  return engine;
}

}  // namespace lockstep::parallel
