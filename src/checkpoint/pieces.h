// Pieces: the flat elements of named tensors, or of their shards, that each rank contributes to a
// save. The pieces of all ranks must cover every tensor exactly once.
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

/// Position of a tensor inside a stacked tensor: its elements start at `offset`.
struct StackedTensor {
  std::string name;
  std::vector<int64_t> shape;  // shape of the stacked tensor
  int64_t offset = 0;
};

/// Elements [begin, begin + data.numel()) of a tensor in C order of its global shape or, if it is
/// sharded, of the shard.
struct Piece {
  std::string file_group;      // group of files: "model" or "optimizer"
  std::string name;            // name of the tensor; equal on every rank
  at::ScalarType dtype;        // type in the file; floating data of another type is rounded to it
  std::vector<int64_t> shape;  // shape of the whole tensor
  int64_t begin = 0;
  at::Tensor
      data;  // contiguous, of any shape and device; undefined or empty if this rank has no elements
  mesh::Cut cut = {};  // the shard that `begin` refers to; default: the whole tensor
  std::optional<StackedTensor> stack =
      {};  // the stacked tensor of the files that contains it, if any

  /// stored_name() is the name of the tensor in the files; stored_offset() is the index of this
  /// tensor's first element in it.
  const std::string& stored_name() const { return stack ? stack->name : name; }
  const std::vector<int64_t>& stored_shape() const { return stack ? stack->shape : shape; }
  int64_t stored_offset() const { return stack ? stack->offset : 0; }
};

/// Returns this rank's piece of a slice of the training state (parallel::StateSlice), for reading.
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
/// Returns the part of the piece that this rank writes.
template <class Slice>
Piece owned_piece(const Slice& slice) {
  Piece piece = held_piece(slice);
  piece.begin += slice.owned_begin;
  piece.data = slice.data.narrow(0, slice.owned_begin, slice.owned_end - slice.owned_begin);
  return piece;
}

/// A tensor of the checkpoint, combined from the pieces of all ranks.
struct GlobalTensor {
  std::string file_group;
  TensorEntry entry;  // begin and end are unset
};

/// Serializes this rank's pieces, without their data, for `combine_pieces`. Throws Error (internal)
/// for a piece that is not contiguous or whose type cannot be stored.
std::string describe_pieces(std::span<const Piece> pieces);

/// Parses the output of describe_pieces; `data_of` creates the data for a number of elements and a
/// type. Throws Error (checkpoint) for an invalid string.
std::vector<Piece> parse_pieces(
    const std::string& description,
    const std::function<at::Tensor(int64_t elements, at::ScalarType type)>& data_of);

/// Returns the checkpoint's tensors, sorted by group and name, from the descriptions of all ranks
/// (in rank order). The result is the same on every rank. Throws Error (internal) with all problems
/// if the pieces of a tensor disagree on its shape or type, exceed it, overlap, or leave elements
/// out. Each problem names the tensor, the range and the ranks.
std::vector<GlobalTensor> combine_pieces(std::span<const std::string> descriptions);

/// Returns the pieces that rank `rank` of `size` writes if all ranks have the same tensors. The
/// tensors, laid end to end, are divided into `size` ranges of about equal bytes. `whole` are
/// complete pieces; the result views their data. Empty tensors go to rank 0.
std::vector<Piece> share_of(std::span<const Piece> whole, int rank, int size);

}  // namespace lockstep::checkpoint
