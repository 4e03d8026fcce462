// Assembles distributed matrices, each on one rank, for optimizers that need whole matrices
// (optim/muon.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "mesh/cut.h"
#include "optim/optimizer.h"

namespace lockstep::parallel {

/// Implements optim::ChangeMatrices over all ranks of a run, for any sharding: ZeRO shards, tensor
/// parallelism, experts and replicas. Each matrix is assigned to one of the ranks that hold a piece
/// of it, so that the work is balanced. The other ranks send their pieces directly to that rank and
/// receive them back, both in the pieces' own type.
class MatrixExchange {
 public:
  /// `ranks` contains all ranks of the run and must outlive this object. Matrices are modified on
  /// `device`.
  MatrixExchange(comm::Communicator& ranks, c10::Device device);

  /// Must be called on every rank, with pieces of the same matrices in every call. The first call
  /// exchanges the descriptions of the pieces.
  void operator()(std::span<const optim::MatrixPiece> pieces, const optim::ChangeMatrix& change);

 private:
  struct Part {
    int rank = 0;
    mesh::Cut cut;
    int64_t begin = 0, count = 0;  // position in the flattened shard
    bool is_sent = false;          // sent to the owner; false: another rank sends this part
  };
  struct Matrix {
    std::vector<int64_t> shape;
    std::vector<Part> parts;
    int owner = -1;
    int64_t own = -1;  // index of this rank's piece; -1: none
  };
  using ByRank = std::map<int, std::vector<at::Tensor>>;

  void learn(std::span<const optim::MatrixPiece> pieces);
  /// Assigns each of the matrices [begin, end) to the least loaded rank that holds a piece.
  void deal(size_t begin, size_t end, std::vector<double>& loads);
  static void choose_senders(Matrix& matrix);
  /// Processes the matrices [begin, end) together.
  void change_some(
      size_t begin,
      size_t end,
      std::span<const optim::MatrixPiece> pieces,
      const optim::ChangeMatrix& change);
  at::Tensor assemble(
      const Matrix& matrix, std::span<const optim::MatrixPiece> pieces, ByRank& received) const;
  /// Sends flat tensors to other ranks. Returns the received tensors, one per element of `counts`.
  ByRank exchange(const ByRank& sent, const std::map<int, std::vector<int64_t>>& counts);

  comm::Communicator& ranks_;
  c10::Device device_;
  bool is_learned_ = false;
  at::ScalarType type_ = at::kFloat;  // element type of the messages
  std::vector<Matrix> matrices_;      // sorted by name; the same on all ranks
  std::vector<size_t> rounds_;        // end index of the matrices of each round
};

}  // namespace lockstep::parallel
