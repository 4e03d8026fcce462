// Brings matrices of which ranks hold pieces whole to one rank each, for optimizers that work on
// whole matrices (optim/muon.h).
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

/// An optim::ChangeMatrices over the ranks of a run, whatever they share: shards of ZeRO, parts of
/// tensor parallelism, experts, replicas. Each matrix is dealt to one of the ranks that hold a
/// piece of it, so that all have about as much to compute; the pieces go straight to that rank and
/// back, in their own type, and what it holds itself is not sent.
class MatrixExchange {
 public:
  /// `ranks` are all of the run, which must outlive this; matrices are changed on `device`.
  MatrixExchange(comm::Communicator& ranks, c10::Device device);

  /// Every rank must call, each time with pieces of the same matrices. The first call tells the
  /// ranks of each other's pieces.
  void operator()(std::span<const optim::MatrixPiece> pieces, const optim::ChangeMatrix& change);

 private:
  struct Part {
    int rank = 0;
    mesh::Cut cut;
    int64_t begin = 0, count = 0;  // in the flattened part
    bool is_sent = false;          // to the owner; else others hold it too
  };
  struct Matrix {
    std::vector<int64_t> shape;
    std::vector<Part> parts;
    int owner = -1;
    int64_t own = -1;  // the place of this rank's piece, or -1
  };
  using ByRank = std::map<int, std::vector<at::Tensor>>;

  void learn(std::span<const optim::MatrixPiece> pieces);
  /// Gives each of the matrices [begin, end) to the rank that has the least to compute.
  void deal(size_t begin, size_t end, std::vector<double>& loads);
  static void choose_senders(Matrix& matrix);
  /// Matrices [begin, end) at once.
  void change_some(
      size_t begin,
      size_t end,
      std::span<const optim::MatrixPiece> pieces,
      const optim::ChangeMatrix& change);
  at::Tensor assemble(
      const Matrix& matrix, std::span<const optim::MatrixPiece> pieces, ByRank& received) const;
  /// Sends flat tensors to ranks; gives what others sent, one tensor of each `counts`.
  ByRank exchange(const ByRank& sent, const std::map<int, std::vector<int64_t>>& counts);

  comm::Communicator& ranks_;
  c10::Device device_;
  bool is_learned_ = false;
  at::ScalarType type_ = at::kFloat;  // on the wire
  std::vector<Matrix> matrices_;      // by name, the same on all ranks
  std::vector<size_t> rounds_;        // where each ends
};

}  // namespace lockstep::parallel
