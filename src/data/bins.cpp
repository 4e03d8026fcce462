// Packs documents into rows by best fit decreasing.
#include "data/bins.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::data {
namespace {

/// Row index of each piece, in the order in which rows were opened, and the number of rows.
struct Assignment {
  std::vector<int64_t> row_of;
  int64_t rows = 0;
};

Assignment fit_best(const std::vector<Piece>& pieces, int64_t length) {
  std::vector<int64_t> longest_first(pieces.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  const auto piece = [&](int64_t i) -> const Piece& { return pieces[static_cast<size_t>(i)]; };
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](int64_t a, int64_t b) {
    return piece(a).tokens > piece(b).tokens;
  });
  Assignment found{std::vector<int64_t>(pieces.size()), 0};
  std::map<int64_t, std::deque<int64_t>> rows_by_room;  // rows that were opened first come first
  for (const int64_t i : longest_first) {
    const int64_t tokens = piece(i).tokens;
    if (tokens < 1 || tokens > length) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format("a piece of {} tokens exceeds rows of {}", tokens, length));
    }
    int64_t room = length, row = found.rows;
    if (const auto fit = rows_by_room.lower_bound(tokens); fit != rows_by_room.end()) {
      room = fit->first;
      row = fit->second.front();
      fit->second.pop_front();
      if (fit->second.empty()) {
        rows_by_room.erase(fit);
      }
    } else {
      ++found.rows;
    }
    found.row_of[static_cast<size_t>(i)] = row;
    if (room > tokens) {
      rows_by_room[room - tokens].push_back(row);
    }
  }
  return found;
}

/// Renumbers the rows in the order of their first pieces.
void number_by_first_piece(Assignment& found) {
  std::vector<int64_t> number(static_cast<size_t>(found.rows), -1);
  int64_t next = 0;
  for (int64_t& row : found.row_of) {
    int64_t& of_row = number[static_cast<size_t>(row)];
    of_row = of_row < 0 ? next++ : of_row;
    row = of_row;
  }
}

}  // namespace

Bins::Bins(std::vector<Piece> pieces, int64_t length) {
  Assignment found = fit_best(pieces, length);
  number_by_first_piece(found);
  first_.assign(static_cast<size_t>(found.rows) + 1, 0);
  for (const int64_t row : found.row_of) {
    ++first_[static_cast<size_t>(row) + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<int64_t> next(first_.begin(), first_.end() - 1);
  pieces_.resize(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces_[static_cast<size_t>(next[static_cast<size_t>(found.row_of[i])]++)] = pieces[i];
  }
}

std::span<const Piece> Bins::row(int64_t index) const {
  const auto at = static_cast<size_t>(index);
  return std::span(pieces_).subspan(
      static_cast<size_t>(first_[at]), static_cast<size_t>(first_[at + 1] - first_[at]));
}

}  // namespace lockstep::data
