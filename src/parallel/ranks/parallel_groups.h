// The communicators of a rank: one for each axis of the mesh, and those that several axes form.
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

/// Groups of this rank, split from the world. An axis of size one is alone, and one that takes in
/// every rank is the world's own communicator.
class ParallelGroups {
 public:
  /// Every rank of `world` must call; blocks until all have. `world` must outlive it; `options` are
  /// those that it was joined with. Throws (internal) where the mesh has not as many ranks as the
  /// world.
  ParallelGroups(
      comm::Communicator& world, const mesh::Mesh& mesh, comm::GroupOptions options = {});
  ParallelGroups(const ParallelGroups&) = delete;
  ParallelGroups& operator=(const ParallelGroups&) = delete;

  const mesh::Mesh& mesh() const { return mesh_; }
  const mesh::Coordinate& coordinate() const { return coordinate_; }
  comm::Communicator& world() { return world_; }
  /// The ranks that differ from this one along `axis` alone; its rank is the coordinate there.
  comm::Communicator& along(mesh::Axis axis) { return *along_[static_cast<size_t>(axis)]; }
  /// Data and context together: the ranks that hold the same parameters and see other tokens, over
  /// which gradients and losses are summed.
  comm::Communicator& data_context() { return *data_context_; }
  /// Pipeline and tensor together: the ranks that hold a model between them, over which the
  /// gradient's norm is summed.
  comm::Communicator& model() { return *model_; }
  /// A group of some ranks of `parent`, one of these, that lives as long as they do: as
  /// comm::split.
  comm::Communicator& split(
      comm::Communicator& parent, const std::vector<int>& ranks, const std::string& name);

  /// The world and every group that was split off here.
  void visit_groups(const std::function<void(comm::Communicator&)>& visit);
  /// Seconds spent in waiting for the world and for any of these groups.
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

}  // namespace lockstep::parallel
