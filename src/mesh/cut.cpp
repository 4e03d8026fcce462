// Shapes and contiguous runs of tensor slices.
#include "mesh/cut.h"

#include <algorithm>

namespace lockstep::mesh {
namespace {

int64_t product(std::span<const int64_t> sizes) {
  int64_t all = 1;
  for (const int64_t size : sizes) {
    all *= size;
  }
  return all;
}

}  // namespace

Range split_evenly(int64_t size, int64_t parts, int64_t index) {
  const int64_t least = size / parts, more = size % parts;
  const auto begin = [&](int64_t i) { return least * i + std::min(i, more); };
  return {begin(index), begin(index + 1)};
}

std::vector<int64_t> Cut::local_shape(std::span<const int64_t> shape) const {
  std::vector<int64_t> local(shape.begin(), shape.end());
  if (!is_whole()) {
    int64_t& size = local.at(static_cast<size_t>(dim));
    size = 0;
    for (const Range& range : ranges) {
      size += range.size();
    }
  }
  return local;
}

int64_t Cut::elements(std::span<const int64_t> shape) const {
  return product(local_shape(shape));
}

void visit_runs(
    const Cut& cut,
    std::span<const int64_t> shape,
    int64_t begin,
    int64_t end,
    const std::function<void(int64_t local, int64_t whole, int64_t count)>& visit) {
  if (begin >= end) {
    return;
  }
  if (cut.is_whole()) {
    visit(begin, begin, end - begin);
    return;
  }
  const auto dim = static_cast<size_t>(cut.dim);
  const int64_t inner = product(shape.subspan(dim + 1));
  const int64_t whole_row = shape[dim] * inner;
  int64_t local_row = 0;
  for (const Range& range : cut.ranges) {
    local_row += range.size() * inner;
  }
  for (int64_t row = begin / local_row; row * local_row < end; ++row) {
    int64_t local = row * local_row;
    for (const Range& range : cut.ranges) {
      const int64_t size = range.size() * inner;
      const int64_t first = std::max(begin, local), last = std::min(end, local + size);
      if (first < last) {
        visit(first, row * whole_row + range.begin * inner + (first - local), last - first);
      }
      local += size;
    }
  }
}

}  // namespace lockstep::mesh
