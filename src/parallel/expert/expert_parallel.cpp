// Distributes the experts of a mixture over ranks.
#include "parallel/expert/expert_parallel.h"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "mesh/cut.h"
#include "nn/experts.h"
#include "parallel/expert/row_exchange.h"

namespace lockstep::parallel {
namespace {

/// Experts distributed over the ranks of a group.
struct SpreadExperts final : nn::ExpertExchange {
  SpreadExperts(const nn::ExpertExchange& plain, comm::Communicator& group, bool in_halves)
      : ExpertExchange(plain),
        group(&group) {
    parts = in_halves ? 2 : 1;
  }
  comm::Communicator* group;
  nn::Exchanged forward(
      const std::vector<nn::ExpertRows>& parts,
      const nn::ExpertFunction& experts,
      const nn::BesideFunction& beside) const override;
};

/// All parts are sent at the start. While one part is computed, later parts are received and
/// earlier results are sent back.
nn::Exchanged SpreadExperts::forward(
    const std::vector<nn::ExpertRows>& parts,
    const nn::ExpertFunction& experts,
    const nn::BesideFunction& beside) const {
  std::vector<std::vector<int64_t>> counts;
  for (const nn::ExpertRows& rows : parts) {
    counts.push_back(rows.counts);
  }
  const std::vector<RowRoute> routes = make_routes(counts, *group);
  std::vector<nn::ExpertRows> here;
  std::vector<std::function<Tensor()>> arrived;
  for (size_t i = 0; i < parts.size(); ++i) {
    here.push_back({{}, routes[i].own_counts(), {}});
    if (parts[i].tokens.defined()) {
      here[i].tokens = routes[i].there(parts[i].tokens.unsqueeze(1)).squeeze(1);
    }
    arrived.push_back(routes[i].start(parts[i].values));
  }
  nn::Exchanged made;
  made.beside = beside ? beside() : Tensor();
  for (size_t i = 0; i < parts.size(); ++i) {
    here[i].values = arrived[i]();
    made.rows.push_back(routes[i].start_back(experts(here[i])));
  }
  return made;
}

[[noreturn]] void throw_too_many_ranks(int64_t experts, int ranks) {
  throw Error(
      ErrorKind::kConfig,
      experts == 0
          ? fmt::format("parallel.expert is {}, but the model has no experts", ranks)
          : fmt::format("parallel.expert is {}, but the model has {} experts", ranks, experts),
      experts == 0 ? "use parallel.expert=1 for this model"
                   : fmt::format("set parallel.expert to at most {}", experts));
}

}  // namespace

ExpertGroups make_expert_groups(ParallelGroups& axes, int ranks, bool in_halves) {
  comm::Communicator& all = axes.data_context();
  if (ranks == 1) {
    return {};
  }
  if (ranks < 1 || all.size() % ranks != 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "parallel.expert={} does not divide the {} ranks of data and context",
            ranks,
            all.size()),
        "use a divisor, or more ranks for parallel.data or parallel.context");
  }
  std::vector<int> exchange(static_cast<size_t>(ranks));
  std::iota(exchange.begin(), exchange.end(), all.rank() / ranks * ranks);
  std::vector<int> holders;
  for (int rank = all.rank() % ranks; rank < all.size(); rank += ranks) {
    holders.push_back(rank);
  }
  comm::Communicator& spread = axes.split(all, exchange, "experts");
  return {&spread, &axes.split(all, holders, "holders of experts"), in_halves};
}

void apply_expert_parallel(nn::LanguageModel& model, const ExpertGroups& groups) {
  if (!groups.are_spread()) {
    return;
  }
  comm::Communicator& group = *groups.exchange;
  const int64_t experts = model.config().experts.count;
  if (experts < group.size()) {
    throw_too_many_ranks(experts, group.size());
  }
  const mesh::Range own = mesh::split_evenly(experts, group.size(), group.rank());
  model.visit_slots([&](const nn::SlotName& name, const nn::Slot& slot) {
    if (auto* exchange = slot.as<nn::ExpertExchange>()) {
      *exchange = std::make_shared<SpreadExperts>(**exchange, group, groups.in_halves);
    } else if (auto* linear = slot.as<nn::Linear>()) {
      const int64_t expert = model.layers.at(name.prefix).expert;
      if (expert >= 0 && (expert < own.begin || expert >= own.end)) {
        linear->reset();
      }
    }
  });
}

std::set<std::string> expert_parameters(nn::LanguageModel& model) {
  std::set<std::string> names;
  model.visit_slots(nn::each_layer([&](const nn::SlotName& name, nn::Layer& layer) {
    const auto spec = model.layers.find(name.prefix);
    if (spec == model.layers.end() || spec->second.expert < 0) {
      return;
    }
    layer.visit_parameters([&](const nn::Parameter& parameter) {
      if (parameter.value.defined()) {
        names.insert(name.parameter(parameter.name));
      }
    });
  }));
  return names;
}

}  // namespace lockstep::parallel
