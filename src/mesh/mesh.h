// Mesh of ranks with four axes, and the groups along the axes. Contains only integer arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::mesh {

/// Axes from slowest to fastest. Ranks that differ only in `kTensor` are adjacent (on the same
/// node); ranks that differ in `kPipeline` are farthest apart.
enum class Axis { kPipeline, kData, kContext, kTensor };
inline constexpr int kAxes = 4;
inline constexpr std::array<Axis, kAxes> kAllAxes = {
    Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kTensor};

/// Returns "pipeline", "data", "context" or "tensor", which are also the configuration keys in
/// `parallel`.
std::string_view axis_name(Axis axis);

/// Position of a rank along each axis.
struct Coordinate {
  int pipeline = 0;
  int data = 0;
  int context = 0;
  int tensor = 0;

  int operator[](Axis axis) const;
  int& operator[](Axis axis);
  bool operator==(const Coordinate&) const = default;
  /// Returns, for example, "pipeline 1, data 0, context 0, tensor 3". Used in messages.
  std::string text() const;
};

/// Sizes of the axes. Ranks are numbered from 0 to ranks() - 1. All ranks construct the same mesh.
struct Mesh {
  int pipeline = 1;
  int data = 1;
  int context = 1;
  int tensor = 1;

  int size(Axis axis) const;
  /// Returns the product of the four sizes.
  int ranks() const;
  /// Throws Error (internal) if the rank is not in the mesh.
  Coordinate coordinate(int rank) const;
  /// Throws Error (internal) if the coordinate is not in the mesh.
  int rank_of(const Coordinate& coordinate) const;
  /// Returns the ranks that differ from `rank` only on this axis, including `rank`, in order of
  /// their coordinates: member i of the group has coordinate i.
  std::vector<int> group(Axis axis, int rank) const;
  /// Returns the group over several axes, sorted by rank. For example, gradients are summed over
  /// data and context.
  std::vector<int> group(std::span<const Axis> axes, int rank) const;
  /// Returns all groups of this axis, ordered by their first rank. Each rank is in exactly one
  /// group.
  std::vector<std::vector<int>> groups(Axis axis) const;
  /// Returns, for example, "pipeline 2 × data 2 × context 1 × tensor 2".
  std::string text() const;
  bool operator==(const Mesh&) const = default;
};

/// Mesh requested by the user. If data is not set, it is derived from the number of ranks.
struct MeshRequest {
  std::optional<int64_t> data = std::nullopt;
  int64_t pipeline = 1;
  int64_t context = 1;
  int64_t tensor = 1;
};

/// Returns the mesh for `ranks` ranks. Throws Error (config) if a size is below one or if the
/// product is not `ranks`. The message lists valid meshes, nearest to the request first.
Mesh make_mesh(const MeshRequest& request, int ranks);

/// Returns all meshes of `ranks` ranks, ordered by the number of changed axes, then by the size of
/// the changes.
std::vector<Mesh> meshes_of(int ranks, const MeshRequest& nearest_to);

}  // namespace lockstep::mesh
