// Device mesh: coordinates, groups and valid sizes.
#include "mesh/mesh.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::mesh {

namespace {

constexpr size_t kMeshesShown = 8;

// Returns the distance of `mesh` from the request: the number of axes that differ, and the sum of
// their log2 ratios. A derived data axis does not count.
std::pair<int, double> distance(const Mesh& mesh, const MeshRequest& request) {
  std::pair<int, double> result{0, 0.0};
  const auto add = [&](int64_t asked, int got) {
    if (asked != got) {
      ++result.first;
      result.second += std::abs(std::log2(static_cast<double>(std::max<int64_t>(asked, 1)) / got));
    }
  };
  add(request.pipeline, mesh.pipeline);
  add(request.context, mesh.context);
  add(request.tensor, mesh.tensor);
  if (request.data.has_value()) {
    add(*request.data, mesh.data);
  }
  return result;
}

std::string key_text(const Mesh& mesh) {
  std::string text = fmt::format("parallel.data={}", mesh.data);
  if (mesh.pipeline > 1) {
    text += fmt::format(" parallel.pipeline={}", mesh.pipeline);
  }
  if (mesh.context > 1) {
    text += fmt::format(" parallel.context={}", mesh.context);
  }
  if (mesh.tensor > 1) {
    text += fmt::format(" parallel.tensor={}", mesh.tensor);
  }
  return text;
}

/// Returns the smallest number of ranks, at least `ranks`, that is divisible by the product of the
/// given sizes or, if the data-parallel size is given, equals it. 0: more than kMostRanks.
int64_t ranks_for(const MeshRequest& request, int ranks) {
  constexpr int64_t kMostRanks = 4096;
  int64_t product = 1;
  for (const int64_t size :
       {request.pipeline, request.context, request.tensor, request.data.value_or(1)}) {
    if (size > kMostRanks || (product *= size) > kMostRanks) {
      return 0;
    }
  }
  return request.data ? product : (ranks + product - 1) / product * product;
}

std::string meshes_that_multiply(const MeshRequest& request, int ranks) {
  const std::vector<Mesh> meshes = meshes_of(ranks, request);
  std::string text =
      fmt::format("use one of the meshes of {} rank{}:", ranks, ranks == 1 ? "" : "s");
  const size_t shown = std::min(meshes.size(), kMeshesShown);
  for (size_t i = 0; i < shown; ++i) {
    text += "\n    " + key_text(meshes[i]);
  }
  if (meshes.size() > shown) {
    text += fmt::format("\n    and {} more", meshes.size() - shown);
  }
  return text;
}

void check_sizes(const MeshRequest& request, int ranks) {
  if (ranks < 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("the number of ranks is {}, but must be at least 1", ranks),
        "use --nproc 1 or more");
  }
  std::string problems;
  const auto check = [&](const char* name, int64_t size) {
    if (size < 1) {
      problems += fmt::format(
          "{}parallel.{} is {}, but must be at least 1", problems.empty() ? "" : "\n", name, size);
    }
  };
  check("data", request.data.value_or(1));
  check("pipeline", request.pipeline);
  check("context", request.context);
  check("tensor", request.tensor);
  if (!problems.empty()) {
    throw Error(ErrorKind::kConfig, problems, meshes_that_multiply(request, ranks));
  }
}

}  // namespace

std::string_view axis_name(Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return "pipeline";
    case Axis::kData:
      return "data";
    case Axis::kContext:
      return "context";
    case Axis::kTensor:
      return "tensor";
  }
  return "";
}

int Coordinate::operator[](Axis axis) const {
  return const_cast<Coordinate&>(*this)[axis];
}

int& Coordinate::operator[](Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return pipeline;
    case Axis::kData:
      return data;
    case Axis::kContext:
      return context;
    case Axis::kTensor:
      break;
  }
  return tensor;
}

std::string Coordinate::text() const {
  return fmt::format(
      "pipeline {}, data {}, context {}, tensor {}", pipeline, data, context, tensor);
}

int Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::kPipeline:
      return pipeline;
    case Axis::kData:
      return data;
    case Axis::kContext:
      return context;
    case Axis::kTensor:
      break;
  }
  return tensor;
}

int Mesh::ranks() const {
  return pipeline * data * context * tensor;
}

Coordinate Mesh::coordinate(int rank) const {
  if (rank < 0 || rank >= ranks()) {
    throw Error(ErrorKind::kInternal, fmt::format("rank {} is not in the mesh {}", rank, text()));
  }
  Coordinate result;
  for (auto axis = kAllAxes.rbegin(); axis != kAllAxes.rend(); ++axis) {
    result[*axis] = rank % size(*axis);
    rank /= size(*axis);
  }
  return result;
}

int Mesh::rank_of(const Coordinate& coordinate) const {
  int rank = 0;
  for (const Axis axis : kAllAxes) {
    const int place = coordinate[axis];
    if (place < 0 || place >= size(axis)) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format("coordinate ({}) is not in the mesh {}", coordinate.text(), text()));
    }
    rank = rank * size(axis) + place;
  }
  return rank;
}

std::vector<int> Mesh::group(Axis axis, int rank) const {
  const std::array<Axis, 1> axes{axis};
  return group(axes, rank);
}

std::vector<int> Mesh::group(std::span<const Axis> axes, int rank) const {
  std::vector<Coordinate> members{coordinate(rank)};
  for (const Axis axis : kAllAxes) {  // slowest axis first, so that the result is sorted by rank
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
      continue;
    }
    std::vector<Coordinate> wider;
    for (const Coordinate& member : members) {
      for (int place = 0; place < size(axis); ++place) {
        wider.push_back(member);
        wider.back()[axis] = place;
      }
    }
    members = std::move(wider);
  }
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const Coordinate& member : members) {
    ranks.push_back(rank_of(member));
  }
  return ranks;
}

std::vector<std::vector<int>> Mesh::groups(Axis axis) const {
  std::vector<std::vector<int>> result;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (coordinate(rank)[axis] == 0) {
      result.push_back(group(axis, rank));
    }
  }
  return result;
}

std::string Mesh::text() const {
  return fmt::format(
      "pipeline {} × data {} × context {} × tensor {}", pipeline, data, context, tensor);
}

std::vector<Mesh> meshes_of(int ranks, const MeshRequest& nearest_to) {
  std::vector<int> divisors;
  for (int i = 1; i <= ranks / i; ++i) {
    if (ranks % i == 0) {
      divisors.push_back(i);
      if (i != ranks / i) {
        divisors.push_back(ranks / i);
      }
    }
  }
  std::sort(divisors.begin(), divisors.end());
  std::vector<Mesh> meshes;
  for (const int tensor : divisors) {
    for (const int context : divisors) {
      if (ranks / tensor % context != 0) {
        continue;
      }
      for (const int pipeline : divisors) {
        const int rest = ranks / tensor / context;
        if (rest % pipeline == 0) {
          meshes.push_back(
              {.pipeline = pipeline,
               .data = rest / pipeline,
               .context = context,
               .tensor = tensor});
        }
      }
    }
  }
  std::stable_sort(meshes.begin(), meshes.end(), [&](const Mesh& a, const Mesh& b) {
    return distance(a, nearest_to) < distance(b, nearest_to);
  });
  return meshes;
}

Mesh make_mesh(const MeshRequest& request, int ranks) {
  check_sizes(request, ranks);
  // A size above the number of ranks is invalid. Checking this first prevents an overflow of the
  // product.
  int64_t product = 1;
  bool multiplies = true;
  for (const int64_t size :
       {request.pipeline, request.context, request.tensor, request.data.value_or(1)}) {
    multiplies = multiplies && size <= ranks;
    product = multiplies ? product * size : product;
    multiplies = multiplies && product <= ranks;
  }
  multiplies = multiplies && (request.data.has_value() ? product == ranks : ranks % product == 0);
  if (!multiplies) {
    const std::string data =
        request.data.has_value() ? fmt::format("data {} × ", *request.data) : "";
    const int64_t fitting = ranks_for(request, ranks);
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{}pipeline {} × context {} × tensor {} {} {} rank{}",
            data,
            request.pipeline,
            request.context,
            request.tensor,
            request.data.has_value() ? "does not multiply to the" : "does not divide the",
            ranks,
            ranks == 1 ? "" : "s"),
        (fitting > 0 ? fmt::format("start {} ranks (--nproc {}), or ", fitting, fitting) : "") +
            meshes_that_multiply(request, ranks));
  }
  return {
      .pipeline = static_cast<int>(request.pipeline),
      .data = static_cast<int>(request.data.value_or(ranks / product)),
      .context = static_cast<int>(request.context),
      .tensor = static_cast<int>(request.tensor)};
}

}  // namespace lockstep::mesh
