// Describes, checks and combines the pieces of all ranks.
#include "checkpoint/pieces.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {
namespace {

using json = nlohmann::json;

struct Run {
  int64_t begin, end;
  size_t rank;
};

/// Range of elements of a shard that a rank has.
struct HeldRange {
  mesh::Cut cut;
  int64_t begin, end;
  size_t rank;
  std::vector<int64_t> shape;  // shape of the sharded tensor; it may be a part of a stacked tensor
  int64_t offset;              // offset in the stacked tensor
};

/// Descriptions of one tensor by all ranks.
struct Described {
  TensorEntry entry;
  size_t first_rank = 0;
  std::vector<HeldRange> held;
};

using Key = std::pair<std::string, std::string>;  // group, name

json describe_cut(const mesh::Cut& cut) {
  json ranges = json::array();
  for (const mesh::Range& range : cut.ranges) {
    ranges.push_back({range.begin, range.end});
  }
  return {cut.dim, ranges};
}

/// Returns nullopt if the cut does not fit the shape.
std::optional<mesh::Cut> parse_cut(const json& text, const std::vector<int64_t>& shape) {
  mesh::Cut cut;
  cut.dim = text[0].get<int>();
  if (cut.dim < 0 || cut.dim >= static_cast<int>(shape.size())) {
    return std::nullopt;
  }
  int64_t last = 0;
  for (const json& range : text[1]) {
    cut.ranges.push_back({range[0].get<int64_t>(), range[1].get<int64_t>()});
    const mesh::Range& added = cut.ranges.back();
    if (added.begin < last || added.end < added.begin ||
        added.end > shape[static_cast<size_t>(cut.dim)]) {
      return std::nullopt;
    }
    last = added.end;
  }
  return cut;
}

std::string range_text(int64_t begin, int64_t end) {
  return end - begin == 1 ? fmt::format("element {}", begin)
                          : fmt::format("elements {} to {}", begin, end - 1);
}

void add_piece(
    std::map<Key, Described>& tensors,
    const json& piece,
    size_t rank,
    std::vector<std::string>& problems) {
  TensorEntry entry;
  entry.name = piece[1].get<std::string>();
  entry.dtype = static_cast<FileDtype>(piece[2].get<int>());
  entry.shape = piece[3].get<std::vector<int64_t>>();
  const auto begin = piece[4].get<int64_t>();
  const auto count = piece[5].get<int64_t>();
  const bool negative =
      std::any_of(entry.shape.begin(), entry.shape.end(), [](int64_t dim) { return dim < 0; });
  if (negative || !tensor_bytes(entry)) {
    problems.push_back(
        fmt::format("{} has the invalid shape {}", shown(entry.name), shape_text(entry.shape)));
    return;
  }
  const auto shape = piece[6].get<std::vector<int64_t>>();
  const auto offset = piece[7].get<int64_t>();
  const auto cut = piece.size() > 8 ? parse_cut(piece[8], shape) : mesh::Cut{};
  const int64_t elements = cut ? cut->elements(shape) : 0;
  const int64_t last = offset + mesh::Cut{}.elements(shape);
  if (!cut || begin < 0 || begin > elements || count > elements - begin || offset < 0 ||
      last > entry.elements()) {
    problems.push_back(fmt::format(
        "rank {} has {} of {}, but its shape is {}",
        rank,
        range_text(begin, begin + count),
        shown(entry.name),
        shape_text(entry.shape)));
    return;
  }
  const auto [at, added] = tensors.try_emplace(Key(piece[0].get<std::string>(), entry.name));
  Described& tensor = at->second;
  if (added) {
    tensor.entry = std::move(entry);
    tensor.first_rank = rank;
  } else if (tensor.entry.shape != entry.shape || tensor.entry.dtype != entry.dtype) {
    problems.push_back(fmt::format(
        "{} is {} {} on rank {} and {} {} on rank {}",
        shown(entry.name),
        dtype_name(tensor.entry.dtype),
        shape_text(tensor.entry.shape),
        tensor.first_rank,
        dtype_name(entry.dtype),
        shape_text(entry.shape),
        rank));
    return;
  }
  if (count > 0) {
    tensor.held.push_back({*cut, begin, begin + count, rank, shape, offset});
  }
}

void check_coverage(const Described& tensor, std::vector<std::string>& problems) {
  const std::string what =
      fmt::format("{} {}", shown(tensor.entry.name), shape_text(tensor.entry.shape));
  std::vector<Run> runs;
  for (const HeldRange& held : tensor.held) {
    mesh::visit_runs(
        held.cut,
        held.shape,
        held.begin,
        held.end,
        [&](int64_t /*local*/, int64_t begin, int64_t count) {
          runs.push_back({held.offset + begin, held.offset + begin + count, held.rank});
        });
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return std::tie(a.begin, a.end, a.rank) < std::tie(b.begin, b.end, b.rank);
  });
  int64_t next = 0;
  size_t last_rank = 0;
  for (const Run& run : runs) {
    if (run.begin > next) {
      problems.push_back(fmt::format("no rank has {} of {}", range_text(next, run.begin), what));
    } else if (run.begin < next) {
      problems.push_back(fmt::format(
          "{} of {} overlap between rank {} and rank {}",
          range_text(run.begin, std::min(next, run.end)),
          what,
          last_rank,
          run.rank));
    }
    if (run.end > next) {
      next = run.end;
      last_rank = run.rank;
    }
  }
  if (next < tensor.entry.elements()) {
    problems.push_back(
        fmt::format("no rank has {} of {}", range_text(next, tensor.entry.elements()), what));
  }
}

}  // namespace

std::string describe_pieces(std::span<const Piece> pieces) {
  json all = json::array();
  for (const Piece& piece : pieces) {
    if (piece.data.defined() && !piece.data.is_contiguous()) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format("the piece of tensor {} is not contiguous", shown(piece.name)));
    }
    const FileDtype dtype = file_dtype(piece.dtype);
    const int64_t count = piece.data.defined() ? piece.data.numel() : 0;
    if (count > 0 && piece.data.scalar_type() != piece.dtype &&
        !(at::isFloatingType(piece.data.scalar_type()) && at::isFloatingType(piece.dtype))) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format(
              "the piece of tensor {} is {}, which cannot be converted to {}",
              shown(piece.name),
              c10::toString(piece.data.scalar_type()),
              dtype_name(dtype)));
    }
    all.push_back(
        {piece.file_group,
         piece.stored_name(),
         static_cast<int>(dtype),
         piece.stored_shape(),
         piece.begin,
         count,
         piece.shape,
         piece.stored_offset()});
    if (!piece.cut.is_whole()) {
      all.back().push_back(describe_cut(piece.cut));
    }
  }
  try {
    return all.dump();
  } catch (const json::exception&) {
    throw Error(ErrorKind::kInternal, "a tensor name is not UTF-8");
  }
}

std::vector<Piece> parse_pieces(
    const std::string& description,
    const std::function<at::Tensor(int64_t elements, at::ScalarType type)>& data_of) {
  std::vector<Piece> pieces;
  try {
    for (const json& text : json::parse(description)) {
      Piece piece;
      piece.file_group = text.at(0);
      piece.name = text.at(1);
      const std::optional<at::ScalarType> type = scalar_type(text.at(2).get<FileDtype>());
      piece.dtype = type.value();
      piece.shape = text.at(6).get<std::vector<int64_t>>();
      piece.begin = text.at(4);
      piece.data = data_of(text.at(5), piece.dtype);
      piece.stack = StackedTensor{piece.name, text.at(3), text.at(7)};
      if (text.size() > 8) {
        piece.cut = parse_cut(text.at(8), piece.shape).value();
      }
      pieces.push_back(std::move(piece));
    }
  } catch (const json::exception& error) {
    throw Error(
        ErrorKind::kCheckpoint, fmt::format("invalid description of pieces: {}", error.what()));
  } catch (const std::bad_optional_access&) {
    throw Error(ErrorKind::kCheckpoint, "invalid description of pieces");
  }
  return pieces;
}

std::vector<GlobalTensor> combine_pieces(std::span<const std::string> descriptions) {
  std::map<Key, Described> tensors;
  std::vector<std::string> problems;
  for (size_t rank = 0; rank < descriptions.size(); ++rank) {
    for (const json& piece : json::parse(descriptions[rank])) {
      add_piece(tensors, piece, rank, problems);
    }
  }
  if (problems.empty()) {
    for (auto& [key, tensor] : tensors) {
      check_coverage(tensor, problems);
    }
  }
  if (!problems.empty()) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "the ranks' pieces do not cover every tensor exactly once: {}", list_text(problems)));
  }
  std::vector<GlobalTensor> combined;
  combined.reserve(tensors.size());
  for (auto& [key, tensor] : tensors) {
    combined.push_back({key.first, std::move(tensor.entry)});
  }
  return combined;
}

std::vector<Piece> share_of(std::span<const Piece> whole, int rank, int size) {
  int64_t total = 0;
  for (const Piece& piece : whole) {
    total += piece.data.numel() * static_cast<int64_t>(c10::elementSize(piece.dtype));
  }
  // Boundaries between the ranks' ranges, in bytes. All tensors are numbered consecutively.
  const auto cut = [&](int64_t r) { return total / size * r + total % size * r / size; };
  const int64_t first = cut(rank), last = cut(rank + 1);
  std::vector<Piece> mine;
  int64_t start = 0;
  for (const Piece& piece : whole) {
    const auto width = static_cast<int64_t>(c10::elementSize(piece.dtype));
    const int64_t elements = piece.data.numel();
    // An element belongs to the rank whose range contains the element's first byte.
    const auto element_at = [&](int64_t byte) {
      return std::clamp((byte - start + width - 1) / width, int64_t{0}, elements);
    };
    const int64_t begin = first <= start ? 0 : element_at(first);
    const int64_t end = last <= start ? 0 : element_at(last);
    if (end > begin || (elements == 0 && rank == 0)) {
      Piece part = piece;
      part.begin = begin;
      part.data = piece.data.view({-1}).narrow(0, begin, end - begin);
      mine.push_back(std::move(part));
    }
    start += elements * width;
  }
  return mine;
}

}  // namespace lockstep::checkpoint
