// Creates the process groups of a mesh.
#include "parallel/ranks/parallel_groups.h"

#include "base/error.h"
#include "base/format.h"
#include "comm/split.h"

namespace lockstep::parallel {

using mesh::Axis;

ParallelGroups::ParallelGroups(
    comm::Communicator& world, const mesh::Mesh& mesh, comm::GroupOptions options)
    : world_(world),
      mesh_(mesh),
      options_(std::move(options)) {
  if (mesh.ranks() != world.size()) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("the mesh {} does not fit {} ranks", mesh.text(), world.size()));
  }
  coordinate_ = mesh.coordinate(world.rank());
  for (const Axis axis : mesh::kAllAxes) {
    along_[static_cast<size_t>(axis)] =
        group_of(std::span(&axis, 1), std::string(mesh::axis_name(axis)));
  }
  const auto together = [&](Axis first, Axis second, const char* name) {
    // If one of the axes has size one, the group along the other axis is sufficient.
    if (mesh.size(second) == 1) {
      return &along(first);
    }
    if (mesh.size(first) == 1) {
      return &along(second);
    }
    const std::array<Axis, 2> axes{first, second};
    return group_of(axes, name);
  };
  data_context_ = together(Axis::kData, Axis::kContext, "gradients");
  model_ = together(Axis::kPipeline, Axis::kTensor, "model");
}

comm::Communicator* ParallelGroups::group_of(std::span<const Axis> axes, const std::string& name) {
  const std::vector<int> ranks = mesh_.group(axes, world_.rank());
  if (static_cast<int>(ranks.size()) == world_.size()) {
    return &world_;
  }
  return &split(world_, ranks, name);
}

comm::Communicator& ParallelGroups::split(
    comm::Communicator& parent, const std::vector<int>& ranks, const std::string& name) {
  owned_.push_back(
      std::make_unique<comm::Communicator>(comm::split(parent, ranks, name, options_)));
  return *owned_.back();
}

void ParallelGroups::visit_groups(const std::function<void(comm::Communicator&)>& visit) {
  visit(world_);
  for (const auto& group : owned_) {
    visit(*group);
  }
}

double ParallelGroups::seconds_waited() const {
  double seconds = world_.seconds_waited();
  for (const auto& group : owned_) {
    seconds += group->seconds_waited();
  }
  return seconds;
}

}  // namespace lockstep::parallel
