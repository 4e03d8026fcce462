// Adapters of tables with a row per token or position: embeddings and the head.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/adapters.h"
#include "nn/linear_kernel.h"

namespace lockstep::nn {

/// Adapter of a table W [V, C]. With factors the table is W + s outer inner, outer [V, r] and inner
/// [r, C]; otherwise the rows of some tokens are replaced. The leaves are in float32. A tied head
/// may use the embedding's adapter.
struct TableAdapter {
  /// True for a looked-up table, false for a head; also selects the parameters' names in the layer.
  bool of_embedding = false;
  bool of_tied_head = false;  // embedding that is also the head
  bool decomposes = false;    // DoRA: magnitudes per row of the table or, in look-ups, per column
  bool are_on = true;         // if false, the adapter is ignored
  double scale = 1;           // s
  std::shared_ptr<Dropout> dropout;  // on the states that a head's factors read
  std::vector<int64_t> tokens;       // tokens of the replaced rows; empty: factors
  Tensor a, b, magnitudes;  // in PEFT's layout: [r, V] and [C, r] for an embedding, otherwise [r,
                            // C] and [V, r]; undefined: none
  Tensor rows;              // [tokens, C]; undefined: none
  int64_t first = 0;        // token of the first table row on this rank
  /// Sums over the ranks that hold the other rows; null: this rank has all rows.
  std::function<Tensor(const Tensor&)> sum_over_rows;

  /// Returns the adapted embeddings of ids in this rank's rows; `found` [..., C] are W's. The
  /// padding token's row (-1: none) gets no gradient.
  Tensor look_up(
      const Tensor& weight, const Tensor& found, const Tensor& ids, int64_t padding_row = -1) const;
  /// Operands of a head's product: states [B, T, C'] and a table [V, C'] whose product equals that
  /// of states [B, T, C] with the adapted table. Both have W's type.
  struct Operands {
    Tensor states, table;
  };
  Operands operands(const Tensor& states, const Tensor& weight, const Tensor& drawn) const;
  void visit(const ParameterFunction& function);

 private:
  Tensor outer() const { return of_embedding ? a.t() : b; }
  Tensor inner() const { return of_embedding ? b.t() : a; }
  /// m / n, where n are the row or column norms of W + s outer inner, treated as constants.
  Tensor sizes(const Tensor& weight) const;
  /// Indices in `rows` of the tokens [...], or -1.
  Tensor places_of(const Tensor& ids, int64_t table_rows) const;
};

}  // namespace lockstep::nn
