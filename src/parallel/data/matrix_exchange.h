// Gathers matrices whose pieces are distributed over ranks on one rank each, for optimizers that
// need whole matrices (optim/muon.h).
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

/// An optim::ChangeMatrices over the ranks of a run, for any sharding: ZeRO shards, tensor
/// parallelism, experts, replicas. Each matrix is assigned to one of the ranks that hold a piece of
/// it, balancing the work. Pieces are sent directly to that rank and back in their own type; its
/// own pieces are not sent.
class MatrixExchange {
 public:
  /// `ranks` are all ranks of the run and must outlive this; matrices are modified on `device`.
  MatrixExchange(comm::Communicator& ranks, c10::Device device);

  /// Every rank must call, each time with pieces of the same matrices. The first call exchanges the
  /// descriptions of the pieces.
  void operator()(std::span<const optim::MatrixPiece> pieces, const optim::ChangeMatrix& change);

 private:
  struct Part {
    int rank = 0;
    mesh::Cut cut;
    int64_t begin = 0, count = 0;  // in the flattened shard
    bool is_sent = false;          // to the owner; false: another rank sends this part
  };
  struct Matrix {
    std::vector<int64_t> shape;
    std::vector<Part> parts;
    int owner = -1;
    int64_t own = -1;  // index of this rank's piece, or -1
  };
  using ByRank = std::map<int, std::vector<at::Tensor>>;

  void learn(std::span<const optim::MatrixPiece> pieces);
  /// Assigns each of the matrices [begin, end) to the least loaded rank.
  void deal(size_t begin, size_t end, std::vector<double>& loads);
  static void choose_senders(Matrix& matrix);
  /// Processes matrices [begin, end) together.
  void change_some(
      size_t begin,
      size_t end,
      std::span<const optim::MatrixPiece> pieces,
      const optim::ChangeMatrix& change);
  at::Tensor assemble(
      const Matrix& matrix, std::span<const optim::MatrixPiece> pieces, ByRank& received) const;
  /// Sends flat tensors to ranks; returns the received ones, one tensor per count in `counts`.
  ByRank exchange(const ByRank& sent, const std::map<int, std::vector<int64_t>>& counts);

  comm::Communicator& ranks_;
  c10::Device device_;
  bool is_learned_ = false;
  at::ScalarType type_ = at::kFloat;  // type of the messages
  std::vector<Matrix> matrices_;      // by name; the same on all ranks
  std::vector<size_t> rounds_;        // end index of each round
};

}  // namespace lockstep::parallel
