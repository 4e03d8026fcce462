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

class StateVisit {
 public:
  StateVisit(
      OffloadedOptimizer& optimizer,
      Axes& axes,
      const ShardGroups& groups,
      const std::function<void(const StateSlice&)>& visit)
      : optimizer_(optimizer),
        axes_(axes),
        groups_(groups),
        visit_(visit) {}

  void operator()(ShardedModel& stage) {
    ShardFile* file = stage.engine->shard_file();
    for (FlatUnit& flat : stage.engine->flats()) {
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
          give(stage, "optimizer", piece, flat.replicated || piece.replicated);
        });
      }
    }
  }

 private:
  void give(
      ShardedModel& stage,
      std::string_view group,
      const optim::StatePiece& piece,
      bool replicated) {
    const mesh::Cut cut =
        piece.replicated ? copy_of_whole(stage, piece.parameter) : stage.cut_of(piece.parameter);
    // What several ranks hold, each writes a part of: all of them, or the replicas of a shard.
    const int64_t count = cut.copy > 0 ? 0 : piece.data.numel();
    const auto owned = replicated
                           ? share_of(count, axes_.gradients().rank(), axes_.gradients().size())
                           : share_of(count, groups_.replica_rank(), groups_.replica_count());
    visit_(
        {std::string(group),
         piece.name.empty() ? piece.parameter : piece.name + "." + piece.parameter,
         cut.is_whole() ? piece.shape : stage.shape_of(piece.parameter, piece.shape),
         cut,
         piece.begin,
         piece.data,
         owned.first,
         owned.second,
         group == "optimizer" ? optimizer_.uses_files() : stage.engine->shard_file() != nullptr});
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
  const ShardGroups& groups_;
  const std::function<void(const StateSlice&)>& visit_;
  int64_t shard_ = 0;  // of the optimizer's
};

}  // namespace

void visit_state(
    std::span<ShardedModel> stages,
    OffloadedOptimizer& optimizer,
    Axes& axes,
    const ShardGroups& groups,
    const std::function<void(const StateSlice&)>& visit) {
  const at::NoGradGuard no_grad;
  StateVisit visit_stage(optimizer, axes, groups, visit);
  for (ShardedModel& stage : stages) {
    stage.engine->settle();
    visit_stage(stage);
  }
}

void visit_gradients(
    std::span<const ShardedModel> stages,
    double factor,
    const std::function<void(const StateSlice&)>& visit) {
  for (const ShardedModel& stage : stages) {
    for (const FlatUnit& flat : std::as_const(*stage.engine).flats()) {
      for (const optim::Segment& segment : flat.shard_layout()) {
        if (flat.trainable) {
          visit(
              {"gradient",
               segment.parameter,
               stage.shape_of(segment.parameter, segment.shape),
               stage.cut_of(segment.parameter),
               segment.begin,
               flat.shard_gradient.narrow(0, segment.offset, segment.count) * factor,
               0,
               0});
        }
      }
    }
  }
}

}  // namespace lockstep::parallel
