// Assembles sharded matrices, each on one rank, for matrix optimizers.
#include "parallel/data/matrix_exchange.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

#include <ATen/Functions.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {
namespace {

/// Maximum number of matrix elements exchanged in one round.
constexpr int64_t kElementsOfRound = int64_t{1} << 26;

int64_t elements_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// Returns the number of operations of one Newton-Schulz step.
double cost_of(const std::vector<int64_t>& shape) {
  const auto less = static_cast<double>(std::min(shape[0], shape[1]));
  const auto more = static_cast<double>(std::max(shape[0], shape[1]));
  return less * less * (4 * more + 2 * less);
}

/// Returns one line per piece: type, name, whole shape, first element, count, cut dimensions,
/// ranges.
std::string text_of(std::span<const optim::MatrixPiece> pieces) {
  std::string text;
  for (const optim::MatrixPiece& piece : pieces) {
    const optim::Segment& segment = *piece.segment;
    const auto& shape = segment.whole_shape.empty() ? segment.shape : segment.whole_shape;
    text += fmt::format(
        "{} {} {} {} {} {} {} {}",
        static_cast<int>(piece.values.scalar_type()),
        segment.parameter,
        shape.at(0),
        shape.at(1),
        segment.begin,
        segment.count,
        segment.cut.dim,
        segment.cut.ranges.size());
    for (const mesh::Range& range : segment.cut.ranges) {
      text += fmt::format(" {} {}", range.begin, range.end);
    }
    text += '\n';
  }
  return text;
}

/// Returns the elements of a cut as one flat tensor.
at::Tensor cut_out(const at::Tensor& whole, const mesh::Cut& cut) {
  if (cut.is_whole()) {
    return whole.contiguous().view({-1});
  }
  std::vector<at::Tensor> ranges;
  for (const mesh::Range& range : cut.ranges) {
    ranges.push_back(whole.narrow(cut.dim, range.begin, range.size()));
  }
  return at::cat(ranges, cut.dim).view({-1});
}

void put_back(const at::Tensor& part, const mesh::Cut& cut, const at::Tensor& whole) {
  const at::Tensor shaped = part.view(cut.local_shape(whole.sizes()));
  if (cut.is_whole()) {
    whole.copy_(shaped);
  }
  int64_t at = 0;
  for (const mesh::Range& range : cut.ranges) {
    whole.narrow(cut.dim, range.begin, range.size())
        .copy_(shaped.narrow(cut.dim, at, range.size()));
    at += range.size();
  }
}

}  // namespace

MatrixExchange::MatrixExchange(comm::Communicator& ranks, c10::Device device)
    : ranks_(ranks),
      device_(device) {}

void MatrixExchange::operator()(
    std::span<const optim::MatrixPiece> pieces, const optim::ChangeMatrix& change) {
  if (!is_learned_) {
    learn(pieces);
    is_learned_ = true;
  }
  size_t begin = 0;
  for (const size_t end : rounds_) {
    change_some(begin, end, pieces, change);
    begin = end;
  }
}

void MatrixExchange::learn(std::span<const optim::MatrixPiece> pieces) {
  const std::vector<std::string> texts = comm::gather_strings(ranks_, text_of(pieces));
  std::map<std::string, Matrix> by_name;
  std::vector<int> types;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    std::istringstream lines(texts[static_cast<size_t>(rank)]);
    int type = 0;
    while (lines >> type) {
      types.push_back(type);
      std::string name;
      std::vector<int64_t> shape(2);
      Part part;
      part.rank = rank;
      size_t ranges = 0;
      lines >> name >> shape[0] >> shape[1] >> part.begin >> part.count >> part.cut.dim >> ranges;
      part.cut.ranges.resize(ranges);
      for (mesh::Range& range : part.cut.ranges) {
        lines >> range.begin >> range.end;
      }
      Matrix& matrix = by_name[name];
      matrix.shape = std::move(shape);
      matrix.parts.push_back(std::move(part));
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    by_name.at(pieces[i].segment->parameter).own = static_cast<int64_t>(i);
  }
  const bool are_alike =
      std::all_of(types.begin(), types.end(), [&](int type) { return type == types.front(); });
  if (are_alike && !types.empty()) {
    type_ = static_cast<at::ScalarType>(types.front());
  }
  int64_t elements = 0;
  for (auto& [name, matrix] : by_name) {
    elements += elements_of(matrix.shape);
    matrices_.push_back(std::move(matrix));
    if (elements >= kElementsOfRound) {
      rounds_.push_back(matrices_.size());
      elements = 0;
    }
  }
  if (elements > 0) {
    rounds_.push_back(matrices_.size());
  }
  std::vector<double> loads(static_cast<size_t>(ranks_.size()));
  size_t begin = 0;
  for (const size_t end : rounds_) {
    deal(begin, end, loads);
    begin = end;
  }
}

void MatrixExchange::deal(size_t begin, size_t end, std::vector<double>& loads) {
  std::vector<size_t> order(end - begin);
  std::iota(order.begin(), order.end(), begin);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return cost_of(matrices_[a].shape) > cost_of(matrices_[b].shape);
  });
  for (const size_t place : order) {
    Matrix& matrix = matrices_[place];
    const Part* best = nullptr;
    for (const Part& part : matrix.parts) {
      const double load = loads[static_cast<size_t>(part.rank)];
      const double least = best == nullptr ? load : loads[static_cast<size_t>(best->rank)];
      if (best == nullptr || load < least || (load == least && part.count > best->count)) {
        best = &part;
      }
    }
    matrix.owner = best->rank;
    loads[static_cast<size_t>(best->rank)] += cost_of(matrix.shape);
    choose_senders(matrix);
  }
}

void MatrixExchange::choose_senders(Matrix& matrix) {
  // If several ranks hold a piece, the owner's copy is used if it has one; otherwise the copy of
  // the lowest rank is sent.
  const auto stands_for = [&](const Part& a, const Part& b) {
    if (&a == &b || a.cut.dim != b.cut.dim || a.cut.ranges != b.cut.ranges || a.begin > b.begin ||
        a.begin + a.count < b.begin + b.count) {
      return false;
    }
    const bool is_larger = a.count > b.count;
    return is_larger || a.rank == matrix.owner || (b.rank != matrix.owner && a.rank < b.rank);
  };
  const int64_t elements = elements_of(matrix.shape);
  const auto own = std::find_if(matrix.parts.begin(), matrix.parts.end(), [&](const Part& part) {
    return part.rank == matrix.owner;
  });
  const bool has_all = own->count == elements;
  int64_t sent = 0;
  for (Part& part : matrix.parts) {
    const bool is_own = part.rank == matrix.owner;
    part.is_sent =
        is_own ||
        (!has_all && std::none_of(matrix.parts.begin(), matrix.parts.end(), [&](const Part& other) {
          return stands_for(other, part);
        }));
    sent += part.is_sent ? part.count : 0;
  }
  if (sent < elements) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("the ranks have {} of a matrix's {} elements", sent, elements));
  }
}

void MatrixExchange::change_some(
    size_t begin,
    size_t end,
    std::span<const optim::MatrixPiece> pieces,
    const optim::ChangeMatrix& change) {
  const int me = ranks_.rank();
  const auto values_of = [&](const Matrix& matrix) {
    return pieces[static_cast<size_t>(matrix.own)].values;
  };
  ByRank to_owners, to_holders;
  std::map<int, std::vector<int64_t>> from_holders, from_owners;
  for (size_t i = begin; i < end; ++i) {
    const Matrix& matrix = matrices_[i];
    for (const Part& part : matrix.parts) {
      if (part.rank == matrix.owner) {
        continue;
      }
      if (part.rank == me) {
        from_owners[matrix.owner].push_back(part.count);
        if (part.is_sent) {
          to_owners[matrix.owner].push_back(values_of(matrix));
        }
      } else if (matrix.owner == me && part.is_sent) {
        from_holders[part.rank].push_back(part.count);
      }
    }
  }
  ByRank received = exchange(to_owners, from_holders);
  for (size_t i = begin; i < end; ++i) {
    const Matrix& matrix = matrices_[i];
    if (matrix.owner != me) {
      continue;
    }
    const at::Tensor changed = change(assemble(matrix, pieces, received)).to(type_);
    std::vector<std::pair<const mesh::Cut*, at::Tensor>> cuts;
    for (const Part& part : matrix.parts) {
      auto cut = std::find_if(cuts.begin(), cuts.end(), [&](const auto& each) {
        return each.first->dim == part.cut.dim && each.first->ranges == part.cut.ranges;
      });
      if (cut == cuts.end()) {
        cut = cuts.insert(cuts.end(), {&part.cut, cut_out(changed, part.cut)});
      }
      const at::Tensor values = cut->second.narrow(0, part.begin, part.count);
      if (part.rank == me) {
        values_of(matrix).copy_(values);
      } else {
        to_holders[part.rank].push_back(values);
      }
    }
  }
  ByRank changed = exchange(to_holders, from_owners);
  std::map<int, size_t> next;
  for (size_t i = begin; i < end; ++i) {
    const Matrix& matrix = matrices_[i];
    if (matrix.owner != me && matrix.own >= 0) {
      values_of(matrix).copy_(changed.at(matrix.owner)[next[matrix.owner]++]);
    }
  }
}

at::Tensor MatrixExchange::assemble(
    const Matrix& matrix, std::span<const optim::MatrixPiece> pieces, ByRank& received) const {
  const auto type = at::TensorOptions(device_).dtype(at::kFloat);
  at::Tensor whole = at::empty(matrix.shape, type);
  std::vector<std::pair<const mesh::Cut*, at::Tensor>> cuts;
  for (const Part& part : matrix.parts) {
    if (!part.is_sent) {
      continue;
    }
    auto cut = std::find_if(cuts.begin(), cuts.end(), [&](const auto& each) {
      return each.first->dim == part.cut.dim && each.first->ranges == part.cut.ranges;
    });
    if (cut == cuts.end()) {
      cut =
          cuts.insert(cuts.end(), {&part.cut, at::empty({part.cut.elements(matrix.shape)}, type)});
    }
    at::Tensor values;
    if (part.rank == ranks_.rank()) {
      values = pieces[static_cast<size_t>(matrix.own)].values;
    } else {
      std::vector<at::Tensor>& from = received.at(part.rank);
      values = from.front();
      from.erase(from.begin());
    }
    cut->second.narrow(0, part.begin, part.count).copy_(values);
  }
  for (const auto& [cut, part] : cuts) {
    put_back(part, *cut, whole);
  }
  return whole;
}

MatrixExchange::ByRank MatrixExchange::exchange(
    const ByRank& sent, const std::map<int, std::vector<int64_t>>& counts) {
  const auto type = at::TensorOptions(device_).dtype(type_);
  std::vector<comm::P2p> transfers;
  for (const auto& [rank, tensors] : sent) {
    std::vector<at::Tensor> alike;
    for (const at::Tensor& tensor : tensors) {
      alike.push_back(tensor.to(type));
    }
    transfers.push_back({comm::P2p::Direction::kSend, at::cat(alike), rank});
  }
  ByRank received;
  for (const auto& [rank, each] : counts) {
    const at::Tensor all = at::empty({std::accumulate(each.begin(), each.end(), int64_t{0})}, type);
    received[rank] = all.split_with_sizes(each);
    transfers.push_back({comm::P2p::Direction::kReceive, all, rank});
  }
  ranks_.exchange(transfers).wait();
  return received;
}

}  // namespace lockstep::parallel
