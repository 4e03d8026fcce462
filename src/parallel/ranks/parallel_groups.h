// The communicators of a rank: one per mesh axis, and one for each combination of axes in use.
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

/// Process groups of this rank, split from the world. An axis of size one uses a single-rank
/// communicator; an axis that spans all ranks uses the communicator of the world.
class ParallelGroups {
 public:
  /// Must be called on every rank of `world`; blocks until all ranks have called. `world` must
  /// outlive this object. `options` must be those with which the world was joined. Throws Error
  /// (internal) if the mesh and the world differ in size.
  ParallelGroups(
      comm::Communicator& world, const mesh::Mesh& mesh, comm::GroupOptions options = {});
  ParallelGroups(const ParallelGroups&) = delete;
  ParallelGroups& operator=(const ParallelGroups&) = delete;

  const mesh::Mesh& mesh() const { return mesh_; }
  const mesh::Coordinate& coordinate() const { return coordinate_; }
  comm::Communicator& world() { return world_; }
  /// Returns the group of ranks that differ from this rank only along `axis`. The rank within the
  /// group is the coordinate.
  comm::Communicator& along(mesh::Axis axis) { return *along_[static_cast<size_t>(axis)]; }
  /// Data and context axes: ranks that hold the same parameters and process different tokens.
  /// Gradients and losses are summed over this group.
  comm::Communicator& data_context() { return *data_context_; }
  [[deprecated("use data_context()")]] comm::Communicator& gradients() { return data_context(); }
  /// Pipeline and tensor axes: ranks that together hold one model. The gradient norm is summed over
  /// this group.
  comm::Communicator& model() { return *model_; }
  /// Creates a subgroup of `parent`, which must be one of these groups. The subgroup lives as long
  /// as this object. See comm::split.
  comm::Communicator& split(
      comm::Communicator& parent, const std::vector<int>& ranks, const std::string& name);

  /// Visits the world and all groups of this object.
  void visit_groups(const std::function<void(comm::Communicator&)>& visit);
  /// Returns the seconds spent waiting in collectives of the world and of these groups.
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
