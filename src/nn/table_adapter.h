// Adapters of tables that have a row for each token or position: embeddings, and the head.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/adapters.h"
#include "nn/linear_kernel.h"

namespace lockstep::nn {

/// What stands beside a table W [V, C]: factors, with which it is W + s outer inner, outer [V, r]
/// and inner [r, C]; or rows of some tokens instead of its own. Leaves in float32. A tied head
/// may read the embedding's.
struct TableAdapter {
  /// Of a table that is looked up (else of a head), and its parameters' names in the layer.
  bool of_embedding = false;
  bool of_tied_head = false;  // an embedding's that is the head's too
  bool decomposes = false;  // DoRA: sizes of what the table gives, by row or, looked up, by column
  bool are_on = true;       // else it stands there for nothing
  double scale = 1;         // s
  std::shared_ptr<Dropout> dropout;  // of the states that a head's factors read
  std::vector<int64_t> tokens;       // of rows; empty: factors
  Tensor a, b, magnitudes;  // as PEFT has them: [r, V] and [C, r] of an embedding, else [r, C] and
                            // [V, r]; undefined: there are none
  Tensor rows;              // [tokens, C]; undefined: there are none
  int64_t first = 0;        // the table's rows that are here begin with this token
  std::function<Tensor(const Tensor&)> sum_over_rows;  // over ranks that hold others; null: none do

  /// What the table gives for ids of its rows that are here, where W gives `found` [..., C]. The
  /// padding token's row (-1: none) gets no gradient.
  Tensor look_up(
      const Tensor& weight, const Tensor& found, const Tensor& ids, int64_t padding_row = -1) const;
  /// Of a head: states [B, T, C'] and a table [V, C'] whose product is that of states [B, T, C]
  /// with the adapted table. Both are of W's type.
  struct Operands {
    Tensor states, table;
  };
  Operands operands(const Tensor& states, const Tensor& weight, const Tensor& drawn) const;
  void visit(const ParameterFunction& function);

 private:
  Tensor outer() const { return of_embedding ? a.t() : b; }
  Tensor inner() const { return of_embedding ? b.t() : a; }
  /// m / n, where n are the norms of the columns or of the rows of W + s outer inner, constants.
  Tensor sizes(const Tensor& weight) const;
  /// Of tokens [...]: their places in `rows`, or -1.
  Tensor places_of(const Tensor& ids, int64_t table_rows) const;
};

}  // namespace lockstep::nn
