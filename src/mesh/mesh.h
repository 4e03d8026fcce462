// The mesh of ranks: four axes, and which ranks form which group. Integers only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::mesh {

/// From the slowest to the fastest: ranks that differ in `kTensor` alone are neighbours (one node),
/// ranks that differ in `kPipeline` are farthest apart.
enum class Axis { kPipeline, kData, kContext, kTensor };
inline constexpr int kAxes = 4;
inline constexpr std::array<Axis, kAxes> kAllAxes = {
    Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kTensor};

/// "pipeline", "data", "context", "tensor": the keys of the section `parallel`.
std::string_view axis_name(Axis axis);

/// A rank's place on each axis.
struct Coordinate {
  int pipeline = 0;
  int data = 0;
  int context = 0;
  int tensor = 0;

  int operator[](Axis axis) const;
  int& operator[](Axis axis);
  bool operator==(const Coordinate&) const = default;
  /// "pipeline 1, data 0, context 0, tensor 3", for messages.
  std::string text() const;
};

/// The sizes of the axes; ranks are 0 to ranks()-1. A plain value: every rank makes the same one.
struct Mesh {
  int pipeline = 1;
  int data = 1;
  int context = 1;
  int tensor = 1;

  int size(Axis axis) const;
  /// The product of the four sizes.
  int ranks() const;
  /// Throws (internal) where the rank is not in the mesh.
  Coordinate coordinate(int rank) const;
  /// Throws (internal) where the coordinate is not in the mesh.
  int rank_of(const Coordinate& coordinate) const;
  /// The ranks that differ from `rank` in this axis alone, `rank` included, in order of their
  /// coordinate: the group's rank i has coordinate i.
  std::vector<int> group(Axis axis, int rank) const;
  /// The same over several axes, in order of rank: gradients are summed over data and context, for
  /// one.
  std::vector<int> group(std::span<const Axis> axes, int rank) const;
  /// All groups of this axis, by their first rank. Each rank is in exactly one.
  std::vector<std::vector<int>> groups(Axis axis) const;
  /// "pipeline 2 × data 2 × context 1 × tensor 2".
  std::string text() const;
  bool operator==(const Mesh&) const = default;
};

/// The mesh as a user asks for it; data is derived from the number of ranks where it is not given.
struct MeshRequest {
  std::optional<int64_t> data = std::nullopt;
  int64_t pipeline = 1;
  int64_t context = 1;
  int64_t tensor = 1;
};

/// The mesh of `ranks` ranks. Throws (config) where a size is below one or the product is not
/// `ranks`; the message lists meshes that do multiply, those nearest to the request first.
Mesh make_mesh(const MeshRequest& request, int ranks);

/// Every mesh of `ranks` ranks, those that change the fewest axes of the request (and those the
/// least) first.
std::vector<Mesh> meshes_of(int ranks, const MeshRequest& nearest_to);

}  // namespace lockstep::mesh
