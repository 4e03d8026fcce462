// Row and column indices of the elements of sharded matrices.
#include "optim/matrix_places.h"

#include <vector>

#include <ATen/ATen.h>

namespace lockstep::optim {
namespace {

/// Concatenates the indices of the ranges.
at::Tensor indices(const std::vector<mesh::Range>& ranges) {
  std::vector<at::Tensor> parts;
  for (const mesh::Range& range : ranges) {
    parts.push_back(at::arange(range.begin, range.end, at::kLong));
  }
  return at::cat(parts);
}

}  // namespace

MatrixPlaces::MatrixPlaces(const Segment& segment, at::Device device)
    : own_columns_(segment.shape[1]),
      device_(device) {
  if (!segment.cut.is_whole()) {
    (segment.cut.dim == 0 ? rows_ : columns_) = indices(segment.cut.ranges).to(device);
  }
}

std::pair<at::Tensor, at::Tensor> MatrixPlaces::of(int64_t first, int64_t count) const {
  const at::Tensor element =
      at::arange(first, first + count, at::TensorOptions(device_).dtype(at::kLong));
  const auto in_whole = [](const at::Tensor& place, const at::Tensor& of_part) {
    return of_part.defined() ? of_part.index_select(0, place) : place;
  };
  return {
      in_whole(at::div(element, own_columns_, "floor"), rows_),
      in_whole(at::remainder(element, own_columns_), columns_)};
}

}  // namespace lockstep::optim
