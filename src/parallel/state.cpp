#include "parallel/state.h"

#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "parallel/ranks/tied_copies.h"

namespace lockstep::parallel {
namespace {

/// The part [begin, end) of n elements that a rank of a group owns.
std::pair<int64_t, int64_t> share_of(int64_t n, int64_t rank, int64_t ranks) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

/// Of n elements that several ranks hold, those that this one owns: all holders share what is
/// `replicated`, the replicas of a shard the shard.
std::pair<int64_t, int64_t> owned_of(
    int64_t n, const mesh::Cut& cut, const ShardGroups& groups, bool replicated) {
  const int64_t count = cut.copy > 0 ? 0 : n;
  return replicated ? share_of(count, groups.holders->rank(), groups.holders->size())
                    : share_of(count, groups.replica_rank(), groups.replica_count());
}

class StateVisit {
 public:
  StateVisit(
      OffloadedOptimizer& optimizer,
      Axes& axes,
      const std::function<void(const StateSlice&)>& visit)
      : optimizer_(optimizer),
        axes_(axes),
        visit_(visit) {}

  void operator()(ShardedModel& stage) {
    for (const ShardedModel::Engine& engine : stage.engines()) {
      engine.engine->settle();
      visit_engine(stage, engine);
    }
  }

 private:
  void visit_engine(ShardedModel& stage, const ShardedModel::Engine& engine) {
    ShardFile* file = engine.engine->shard_file();
    for (FlatUnit& flat : engine.engine->flats()) {
      if (flat.full.scalar_type() == at::kByte) {
        continue;  // packed weights, which are as they were read
      }
      const bool in_file = file != nullptr && file->holds(flat.shard);
      if (in_file) {
        file->start_load(flat.shard);
        file->finish_load(flat.shard);
      }
      for (const optim::Segment& segment : flat.shard_layout()) {
        const Tensor data = flat.shard.narrow(0, segment.offset, segment.count);
        give(
            stage,
            engine,
            "model",
            {"", segment.parameter, segment.shape, segment.begin, data},
            flat.replicated);
      }
      if (in_file) {  // it may have been written
        file->start_store(flat.shard);
        file->finish_store(flat.shard);
      }
      if (flat.trainable) {
        optimizer_.visit_state(shard_++, [&](const optim::StatePiece& piece) {
          give(stage, engine, "optimizer", piece, flat.replicated || piece.replicated);
        });
      }
    }
  }

  void give(
      ShardedModel& stage,
      const ShardedModel::Engine& engine,
      std::string_view group,
      const optim::StatePiece& piece,
      bool replicated) {
    const mesh::Cut cut =
        piece.replicated ? copy_of_whole(stage, piece.parameter) : stage.cut_of(piece.parameter);
    const auto owned = owned_of(piece.data.numel(), cut, *engine.groups, replicated);
    visit_(
        {std::string(group),
         piece.name.empty() ? piece.parameter : piece.name + "." + piece.parameter,
         cut.is_whole() ? piece.shape : stage.shape_of(piece.parameter, piece.shape),
         cut,
         piece.begin,
         piece.data,
         owned.first,
         owned.second,
         group == "optimizer" ? optimizer_.uses_files() : engine.engine->shard_file() != nullptr});
  }

  /// Of what each of the ranks that hold a part of a parameter has whole: which copy is this
  /// rank's.
  mesh::Cut copy_of_whole(const ShardedModel& stage, const std::string& parameter) const {
    mesh::Cut whole;
    whole.copies = axes_.mesh().tensor;
    whole.copy = axes_.coordinate().tensor;
    if (is_tied_copy(*stage.model, parameter)) {
      count_other_copy(*stage.model, whole);
    }
    return whole;
  }

  OffloadedOptimizer& optimizer_;
  Axes& axes_;
  const std::function<void(const StateSlice&)>& visit_;
  int64_t shard_ = 0;  // of the optimizer's
};

}  // namespace

void visit_state(
    std::span<ShardedModel> stages,
    OffloadedOptimizer& optimizer,
    Axes& axes,
    const std::function<void(const StateSlice&)>& visit) {
  const at::NoGradGuard no_grad;
  StateVisit visit_stage(optimizer, axes, visit);
  for (ShardedModel& stage : stages) {
    visit_stage(stage);
  }
}

namespace {

void visit_gradients_of(
    const ShardedModel& stage,
    const FlatUnit& flat,
    const ShardGroups& groups,
    double factor,
    const std::function<void(const StateSlice&)>& visit) {
  if (!flat.trainable) {
    return;
  }
  for (const optim::Segment& segment : flat.shard_layout()) {
    const mesh::Cut& cut = stage.cut_of(segment.parameter);
    const auto owned = owned_of(segment.count, cut, groups, flat.replicated);
    visit(
        {"gradient",
         segment.parameter,
         stage.shape_of(segment.parameter, segment.shape),
         cut,
         segment.begin,
         flat.shard_gradient.narrow(0, segment.offset, segment.count) * factor,
         owned.first,
         owned.second});
  }
}

}  // namespace

void visit_gradients(
    std::span<const ShardedModel> stages,
    double factor,
    const std::function<void(const StateSlice&)>& visit) {
  for (const ShardedModel& stage : stages) {
    for (const ShardedModel::Engine& each : stage.engines()) {
      for (const FlatUnit& flat : each.engine->flats()) {
        visit_gradients_of(stage, flat, *each.groups, factor, visit);
      }
    }
  }
}

}  // namespace lockstep::parallel
