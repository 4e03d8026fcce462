// Products of bfloat16 matrices over plain pointers on processors with AMX. Internal to ops.
//
// A tile product reads rows that are contiguous along the summed dimension, and columns in which
// pairs of neighbors along that dimension are interleaved, so at least one operand must be packed.
// A library that packs again for every block spends two thirds of its time on packing. This
// implementation packs each value of either operand once.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Layout of an operand: the summed dimension (`depth`) is along its rows or across them.
enum class Depth { kAlongRows, kAcrossRows };

struct Operand {
  const void* data = nullptr;  // bfloat16 values
  int64_t stride = 0;          // number of elements from one row to the next
  Depth depth = Depth::kAlongRows;
};

/// Handling of the sums: rounded to bfloat16; added to the result and then rounded; or stored as
/// float32.
enum class Sums { kRounded, kAddedAndRounded, kKept };

/// result [rows, columns] = left x right (+ bias), summed in float32 and rounded once. No size may
/// be 0.
struct MatrixProduct {
  int64_t rows = 0, columns = 0, depth = 0;
  Operand left;                // [rows, depth] for kAlongRows, [depth, rows] for kAcrossRows
  Operand right;               // [columns, depth] for kAlongRows, [depth, columns] for kAcrossRows
  const void* bias = nullptr;  // [columns], bfloat16
  void* result = nullptr;      // bfloat16; float32 for Sums::kKept
  Sums sums = Sums::kRounded;
  int64_t result_stride = 0;
  float sums_scale = 1,
        added_scale = 1;  // factors of the sums and of the previous result; 1 for Sums::kKept
  // Sums of the operands over the depth in float32; null: not computed. Requires kAcrossRows for
  // that operand.
  float* left_sums = nullptr;   // [rows]
  float* right_sums = nullptr;  // [columns]
};

/// Scratch memory of a product, aligned to 64 bytes.
struct MatrixScratch {
  int64_t left_bytes = 0;    // shared by all threads; 0: the left operand is read in place
  int64_t thread_bytes = 0;  // for each thread
};
MatrixScratch scratch_of(const MatrixProduct&);

/// Number of parts in which the left operand is packed, and number of parts into which the columns
/// are divided.
int64_t left_parts(const MatrixProduct&);
int64_t column_parts(const MatrixProduct&);

/// Packs the parts [first, last) of the left operand. Required before `multiply` if left_bytes is
/// not 0. Parts may be packed in parallel.
void lay_out_left(const MatrixProduct&, int64_t first, int64_t last, void* left);

/// Computes the columns of the parts [first, last). Parts may be computed in parallel.
void multiply(
    const MatrixProduct&, int64_t first, int64_t last, const void* left, void* thread_scratch);

}  // namespace lockstep::ops::kernel
