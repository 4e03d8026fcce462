// The communicators of a rank: one per axis of the mesh, and those of combined axes.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "mesh/mesh.h"

namespace lockstep::parallel {

/// Process groups of this rank, split from the world. An axis of size one has a single-rank
/// communicator, and an axis that spans all ranks uses the world's.
class ParallelGroups {
 public:
  /// Every rank of `world` must call; blocks until all have. `world` must outlive it; `options` are
  /// those with which it was joined. Throws Error (internal) if the mesh and the world differ in
  /// size.
  ParallelGroups(
      comm::Communicator& world, const mesh::Mesh& mesh, comm::GroupOptions options = {});
  ParallelGroups(const ParallelGroups&) = delete;
  ParallelGroups& operator=(const ParallelGroups&) = delete;

  const mesh::Mesh& mesh() const { return mesh_; }
  const mesh::Coordinate& coordinate() const { return coordinate_; }
  comm::Communicator& world() { return world_; }
  /// The ranks that differ from this one only along `axis`; the rank in the group is the
  /// coordinate.
  comm::Communicator& along(mesh::Axis axis) { return *along_[static_cast<size_t>(axis)]; }
  /// Data and context axes: the ranks that hold the same parameters and process other tokens, over
  /// which gradients and losses are summed.
  comm::Communicator& data_context() { return *data_context_; }
  [[deprecated("use data_context()")]] comm::Communicator& gradients() { return data_context(); }
  /// Pipeline and tensor axes: the ranks that together hold a model, over which the gradient norm
  /// is summed.
  comm::Communicator& model() { return *model_; }
  /// Splits a group of some ranks off `parent`, one of these groups; it lives as long as they do.
  /// See comm::split.
  comm::Communicator& split(
      comm::Communicator& parent, const std::vector<int>& ranks, const std::string& name);

  /// The world and every group that was split off here.
  void visit_groups(const std::function<void(comm::Communicator&)>& visit);
  /// Seconds spent waiting for the world or any of these groups.
  double seconds_waited() const;

 private:
  comm::Communicator* group_of(std::span<const mesh::Axis> axes, const std::string& name);

  comm::Communicator& world_;
  mesh::Mesh mesh_;
  mesh::Coordinate coordinate_;
  comm::GroupOptions options_;
  std::vector<std::unique_ptr<comm::Communicator>> owned_;
  std::array<comm::Communicator*, mesh::kAxes> along_{};
  comm::Communicator* data_context_ = nullptr;
  comm::Communicator* model_ = nullptr;
};

using Axes [[deprecated("use ParallelGroups")]] = ParallelGroups;

}  // namespace lockstep::parallel
