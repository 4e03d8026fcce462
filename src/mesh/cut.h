// Slice of a tensor that a rank stores. Contains only index arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::mesh {

/// Half-open index range [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Returns slice `index` of `size` elements that are divided into `parts` slices. The first size %
/// parts slices have one more element.
Range split_evenly(int64_t size, int64_t parts, int64_t index);

/// Slice of a tensor: one or more index ranges of one dimension, concatenated, with all indices of
/// the other dimensions. The slice is stored densely in C order. The default is the whole tensor.
struct Cut {
  int dim = -1;               // sliced dimension; -1: none
  std::vector<Range> ranges;  // index ranges of `dim`, ascending and disjoint
  int copies = 1;             // number of ranks of the tensor group that hold this slice
  int copy = 0;               // index of this rank among these ranks; copy 0 writes checkpoints

  bool is_whole() const { return dim < 0; }
  /// Return the shape and the number of elements of the slice, given the shape of the whole tensor.
  std::vector<int64_t> local_shape(std::span<const int64_t> shape) const;
  int64_t elements(std::span<const int64_t> shape) const;
  bool operator==(const Cut&) const = default;
};

/// Calls visit(local, whole, count) for each contiguous run of the slice's elements [begin, end) in
/// C order: `count` elements at offset `local` of the slice and offset `whole` of the flattened
/// whole tensor. `shape` is the shape of the whole tensor.
void visit_runs(
    const Cut& cut,
    std::span<const int64_t> shape,
    int64_t begin,
    int64_t end,
    const std::function<void(int64_t local, int64_t whole, int64_t count)>& visit);

}  // namespace lockstep::mesh
