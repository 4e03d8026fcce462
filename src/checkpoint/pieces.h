// Pieces are the flat elements of named tensors, or of shards of them, that each rank contributes
// to a save. The pieces of all ranks must cover every tensor exactly once.
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

/// Position of a tensor in a stacked tensor. Its elements start at `offset`.
struct StackedTensor {
  std::string name;
  std::vector<int64_t> shape;  // shape of the stacked tensor
  int64_t offset = 0;
};

/// Elements [begin, begin + data.numel()) of a tensor, in C order of its global shape. If the
/// tensor is sharded, in C order of the shard.
struct Piece {
  std::string file_group;      // file group: "model" or "optimizer"
  std::string name;            // name of the tensor, the same on every rank
  at::ScalarType dtype;        // type in the file; floating data of other types is rounded to it
  std::vector<int64_t> shape;  // shape of the whole tensor
  int64_t begin = 0;
  at::Tensor
      data;  // contiguous, of any shape and device; undefined or empty if this rank has no elements
  mesh::Cut cut = {};  // shard that `begin` refers to; by default, the whole tensor
  std::optional<StackedTensor> stack =
      {};  // stacked tensor of the files that contains the tensor, if any

  /// stored_name() returns the name of the tensor in the files. stored_offset() returns the index
  /// of this tensor's first element in it.
  const std::string& stored_name() const { return stack ? stack->name : name; }
  const std::vector<int64_t>& stored_shape() const { return stack ? stack->shape : shape; }
  int64_t stored_offset() const { return stack ? stack->offset : 0; }
};

/// Returns the piece of this rank for a slice of the training state (parallel::StateSlice). Used
/// for reading.
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
/// Returns the part of the piece that this rank must write.
template <class Slice>
Piece owned_piece(const Slice& slice) {
  Piece piece = held_piece(slice);
  piece.begin += slice.owned_begin;
  piece.data = slice.data.narrow(0, slice.owned_begin, slice.owned_end - slice.owned_begin);
  return piece;
}

/// Tensor of the checkpoint, combined from the pieces of all ranks.
struct GlobalTensor {
  std::string file_group;
  TensorEntry entry;  // `begin` and `end` are not set
};

/// Serializes this rank's pieces, without their data, for combine_pieces(). Throws Error (internal)
/// if a piece is not contiguous or its type cannot be stored.
std::string describe_pieces(std::span<const Piece> pieces);

/// Parses the result of describe_pieces(). `data_of` creates the data for a number of elements and
/// a type. Throws Error (checkpoint) if the string is invalid.
std::vector<Piece> parse_pieces(
    const std::string& description,
    const std::function<at::Tensor(int64_t elements, at::ScalarType type)>& data_of);

/// Returns the checkpoint's tensors, sorted by group and name. `descriptions` are those of all
/// ranks, in rank order. The result is the same on every rank. Throws Error (internal) if the
/// pieces of a tensor disagree about its shape or type, exceed the tensor, overlap, or do not cover
/// it. The error lists all problems with the tensor, the range and the ranks.
std::vector<GlobalTensor> combine_pieces(std::span<const std::string> descriptions);

/// Returns the pieces that rank `rank` of `size` ranks writes if all ranks have the same tensors.
/// All bytes of the tensors are divided into `size` ranges of about the same size. `whole` are
/// complete pieces; the result contains views of their data. Rank 0 writes empty tensors.
std::vector<Piece> share_of(std::span<const Piece> whole, int rank, int size);

}  // namespace lockstep::checkpoint
