// Which elements of a whole tensor a rank holds: integers only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::mesh {

/// Indices [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Part `index` of `size` things among `parts`: the first size % parts of them have one more.
Range split_evenly(int64_t size, int64_t parts, int64_t index);

/// A part of a tensor: of one dim some ranges of indices, laid end to end; of the others all. The
/// part is dense in C order. The default is the whole tensor.
struct Cut {
  int dim = -1;               // that is cut; -1: none
  std::vector<Range> ranges;  // of indices of `dim`, ascending and apart
  int copies = 1;             // the ranks of the tensor group that hold these same elements
  int copy = 0;               // which of them this one is; copy 0 writes checkpoints

  bool is_whole() const { return dim < 0; }
  /// The shape of the part, and its elements.
  std::vector<int64_t> local_shape(std::span<const int64_t> shape) const;
  int64_t elements(std::span<const int64_t> shape) const;
  bool operator==(const Cut&) const = default;
};

/// Calls visit(local, whole, count) for the elements [begin, end) of the part in C order: `count`
/// of them, from `local` on in the part, stand together from `whole` on in the flattened whole.
/// `shape` is the whole tensor's.
void visit_runs(
    const Cut& cut,
    std::span<const int64_t> shape,
    int64_t begin,
    int64_t end,
    const std::function<void(int64_t local, int64_t whole, int64_t count)>& visit);

}  // namespace lockstep::mesh
