// Visits the training state in a form that does not depend on the plan.
#include "parallel/state.h"

#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "parallel/ranks/tied_copies.h"
#include "parallel/write_partition.h"

namespace lockstep::parallel {
namespace {

/// Assigns owners to replicated tensors. All holders divide tensors in `replicated` among them; the
/// ranks that hold a replica of a shard divide the shard.
class Ownership {
 public:
  explicit Ownership(std::span<const ShardedModel> stages) {
    for (const ShardedModel& stage : stages) {
      for (const ShardedModel::Engine& engine : stage.engines()) {
        for (const FlatUnit& flat : engine.engine->flats()) {
          add(stage, *engine.groups, flat);
        }
      }
    }
  }

  Owned operator()(
      const ShardGroups& groups,
      const FlatUnit& flat,
      bool replicated,
      const mesh::Cut& cut,
      const std::string& parameter,
      int64_t begin,
      int64_t elements) {
    WritePartition& shares = shares_[{&groups, replicated, flat.trainable}];
    return shares.of(
        parameter,
        begin,
        cut.copy > 0 ? 0 : elements,
        replicated ? groups.holders->rank() : groups.replica_rank(),
        replicated ? groups.holders->size() : groups.replica_count());
  }

 private:
  void add(const ShardedModel& stage, const ShardGroups& groups, const FlatUnit& flat) {
    for (const optim::Segment& segment : flat.shard_layout()) {
      if (stage.cut_of(segment.parameter).copy == 0) {
        shares_[{&groups, flat.replicated, flat.trainable}].add(
            segment.parameter, segment.begin, segment.count);
      }
    }
  }

  std::map<std::tuple<const ShardGroups*, bool, bool>, WritePartition> shares_;
};

class StateVisit {
 public:
  StateVisit(
      std::span<const ShardedModel> stages,
      OffloadedOptimizer& optimizer,
      ParallelGroups& axes,
      const std::function<void(const StateSlice&)>& visit)
      : optimizer_(optimizer),
        axes_(axes),
        visit_(visit),
        ownership_(stages) {}

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
        continue;  // not visited, because packed base weights never change
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
            flat,
            "model",
            {"", segment.parameter, segment.shape, segment.begin, data},
            flat.replicated);
      }
      if (in_file) {  // the visitor may have modified the values
        file->start_store(flat.shard);
        file->finish_store(flat.shard);
      }
      if (flat.trainable) {
        optimizer_.visit_state(shard_++, [&](const optim::StatePiece& piece) {
          give(stage, engine, flat, "optimizer", piece, flat.replicated || piece.replicated);
        });
      }
    }
  }

  void give(
      ShardedModel& stage,
      const ShardedModel::Engine& engine,
      const FlatUnit& flat,
      std::string_view group,
      const optim::StatePiece& piece,
      bool replicated) {
    const mesh::Cut cut =
        piece.replicated ? copy_of_whole(stage, piece.parameter) : stage.cut_of(piece.parameter);
    const Owned owned = ownership_(
        *engine.groups, flat, replicated, cut, piece.parameter, piece.begin, piece.data.numel());
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

  /// Returns this rank's copy index for a parameter that every tensor rank holds whole.
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
  ParallelGroups& axes_;
  const std::function<void(const StateSlice&)>& visit_;
  int64_t shard_ = 0;  // index of the shard in the optimizer
  Ownership ownership_;
};

}  // namespace

void visit_state(
    std::span<ShardedModel> stages,
    OffloadedOptimizer& optimizer,
    ParallelGroups& axes,
    const std::function<void(const StateSlice&)>& visit) {
  const at::NoGradGuard no_grad;
  StateVisit visit_stage(stages, optimizer, axes, visit);
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
    Ownership& ownership,
    const std::function<void(const StateSlice&)>& visit) {
  if (!flat.trainable) {
    return;
  }
  for (const optim::Segment& segment : flat.shard_layout()) {
    const mesh::Cut& cut = stage.cut_of(segment.parameter);
    const Tensor gradient = flat.shard_gradient.narrow(0, segment.offset, segment.count);
    const Owned owned = ownership(
        groups, flat, flat.replicated, cut, segment.parameter, segment.begin, segment.count);
    visit(
        {"gradient",
         segment.parameter,
         stage.shape_of(segment.parameter, segment.shape),
         cut,
         segment.begin,
         gradient * factor,
         owned.first,
         owned.second});
  }
}

}  // namespace

void visit_gradients(
    std::span<const ShardedModel> stages,
    double factor,
    const std::function<void(const StateSlice&)>& visit) {
  Ownership ownership(stages);
  for (const ShardedModel& stage : stages) {
    for (const ShardedModel::Engine& each : stage.engines()) {
      for (const FlatUnit& flat : each.engine->flats()) {
        visit_gradients_of(stage, flat, *each.groups, factor, ownership, visit);
      }
    }
  }
}

}  // namespace lockstep::parallel
