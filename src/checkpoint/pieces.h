// What each rank gives to a save: flat elements of named tensors, or of parts of them. Together
// they must be every tensor, once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "checkpoint/safetensors.h"
#include "mesh/cut.h"

namespace lockstep::checkpoint {

/// Where a tensor lies in one that holds several: its elements follow the one at `offset`.
struct StackedTensor {
  std::string name;
  std::vector<int64_t> shape;  // of the whole
  int64_t offset = 0;
};

/// Elements [begin, begin + data.numel()) of a tensor, in C order of its global shape; where the
/// tensor is cut, of that part of it.
struct Piece {
  std::string file_group;      // "model" or "optimizer": which files it goes to
  std::string name;            // of the tensor, the same on every rank
  at::ScalarType dtype;        // in the file; floating data of another type is rounded to it
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t begin = 0;
  at::Tensor
      data;  // contiguous, of any shape and device; none or zero elements: this rank has none of it
  mesh::Cut cut = {};  // the part that `begin` counts in: the whole, unless it says otherwise
  std::optional<StackedTensor> stack = {};  // the files' tensor that it is a part of, if any

  /// The tensor of the files, and where this one's first element is in it.
  const std::string& stored_name() const { return stack ? stack->name : name; }
  const std::vector<int64_t>& stored_shape() const { return stack ? stack->shape : shape; }
  int64_t stored_offset() const { return stack ? stack->offset : 0; }
};

/// What a rank holds of a slice of the training state (parallel::StateSlice), to be read.
template <class Slice>
Piece held_piece(const Slice& slice) {
  return {
      slice.file_group,
      slice.name,
      slice.data.scalar_type(),
      slice.shape,
      slice.begin,
      slice.data,
      slice.cut};
}
/// What it writes of it.
template <class Slice>
Piece owned_piece(const Slice& slice) {
  Piece piece = held_piece(slice);
  piece.begin += slice.owned_begin;
  piece.data = slice.data.narrow(0, slice.owned_begin, slice.owned_end - slice.owned_begin);
  return piece;
}

/// A tensor of the checkpoint, from the pieces of all ranks.
struct GlobalTensor {
  std::string file_group;
  TensorEntry entry;  // begin and end are not set
};

/// This rank's pieces as text, without their data, for `combine_pieces`. Throws (internal) for a
/// piece that is not contiguous or whose type has no place in a file.
std::string describe_pieces(std::span<const Piece> pieces);

/// The pieces of describe_pieces, their types those of the files, without their data: what
/// `data_of` gives of a number of elements and a type. Throws (checkpoint) for a text that is not
/// of that.
std::vector<Piece> parse_pieces(
    const std::string& description,
    const std::function<at::Tensor(int64_t elements, at::ScalarType type)>& data_of);

/// The checkpoint's tensors, sorted by group and name, from what every rank described (in rank
/// order): the same on every rank, whatever rank holds what. Throws (internal), all problems at
/// once, where the pieces of a tensor disagree on its shape or type, lie beyond it, overlap, or
/// leave elements out: tensor, range and ranks are named.
std::vector<GlobalTensor> combine_pieces(std::span<const std::string> descriptions);

/// Which pieces rank `rank` of `size` writes of tensors that every rank holds whole: the tensors,
/// laid end to end, are cut into `size` runs of about equal bytes. `whole` are pieces with begin 0
/// and all their elements; the result has views of their data. A tensor without elements goes to
/// rank 0.
std::vector<Piece> share_of(std::span<const Piece> whole, int rank, int size);

}  // namespace lockstep::checkpoint
