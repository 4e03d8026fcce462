// Adapters of tables with one row per token or position: embeddings and the head.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/adapters.h"
#include "nn/linear_kernel.h"

namespace lockstep::nn {

/// Adapter of a table W [V, C]. With factors, the adapted table is W + s outer inner, with outer
/// [V, r] and inner [r, C]. Otherwise the rows of some tokens are replaced. The leaves are float32.
/// A tied head may use the embedding's adapter.
struct TableAdapter {
  /// True for an embedding table, false for a head. Also determines the names of the parameters in
  /// the layer.
  bool of_embedding = false;
  bool of_tied_head = false;         // the embedding is also the head
  bool decomposes = false;           // DoRA: magnitudes per row of the table (head) or per column
                                     // (lookups)
  bool are_on = true;                // false: the adapter is ignored
  double scale = 1;                  // s in the formulas
  std::shared_ptr<Dropout> dropout;  // dropout of the states that a head's factors read
  std::vector<int64_t> tokens;       // tokens whose rows are replaced; empty: uses factors
  Tensor a, b, magnitudes;  // in PEFT's layout: [r, V] and [C, r] for an embedding, [r, C] and [V,
                            // r] for a head; undefined: no factors
  Tensor rows;              // [tokens, C]; undefined: no replaced rows
  int64_t first = 0;        // token of this rank's first table row
  /// Sums over the ranks that hold the other rows; null: this rank has all rows.
  std::function<Tensor(const Tensor&)> sum_over_rows;

  /// Returns the adapted embeddings of ids in this rank's rows. `found` [..., C] are the rows of W.
  /// The row of the padding token (-1: none) gets no gradient.
  Tensor look_up(
      const Tensor& weight, const Tensor& found, const Tensor& ids, int64_t padding_row = -1) const;
  /// Operands of the head's product: states [B, T, C'] and table [V, C'], whose product equals that
  /// of states [B, T, C] and the adapted table. Both have the type of W.
  struct Operands {
    Tensor states, table;
  };
  Operands operands(const Tensor& states, const Tensor& weight, const Tensor& drawn) const;
  void visit(const ParameterFunction& function);

 private:
  Tensor outer() const { return of_embedding ? a.t() : b; }
  Tensor inner() const { return of_embedding ? b.t() : a; }
  /// Returns m / n, where n are the row or column norms of W + s outer inner, which are treated as
  /// constants.
  Tensor sizes(const Tensor& weight) const;
  /// Returns the indices of the tokens [...] in `rows`; -1: not replaced.
  Tensor places_of(const Tensor& ids, int64_t table_rows) const;
};

}  // namespace lockstep::nn
