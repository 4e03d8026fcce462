// Products of bfloat16 matrices on processors with AMX, over plain pointers. Internal to ops.
//
// Tiles multiply rows that run along the summed dim by columns of which two neighbours along it
// stand together, so one side or both have to be laid out anew: where a library does so anew for
// every block of a product, it costs two thirds of the product itself. Here each value of either
// side is laid out once.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// How a matrix of a product lies: with the summed dim (`depth`) along its rows, or across them.
enum class Depth { kAlongRows, kAcrossRows };

struct Operand {
  const void* data = nullptr;  // bfloat16
  int64_t stride = 0;          // elements between two rows
  Depth depth = Depth::kAlongRows;
};

/// What becomes of the sums: rounded to bfloat16; added to what the result holds, and then rounded
/// to it; or float32 as they are.
enum class Sums { kRounded, kAddedAndRounded, kKept };

/// result [rows, columns] = left x right (+ bias), summed in float32, rounded once. No size is 0.
struct MatrixProduct {
  int64_t rows = 0, columns = 0, depth = 0;
  Operand left;                // [rows, depth] along rows, [depth, rows] across
  Operand right;               // [columns, depth] along rows, [depth, columns] across
  const void* bias = nullptr;  // [columns], bfloat16
  void* result = nullptr;      // bfloat16, or float32 where the sums are kept
  Sums sums = Sums::kRounded;
  int64_t result_stride = 0;
  float sums_scale = 1, added_scale = 1;  // of the sums, and of what the result holds; kept: 1
  // Sums over the depth, in float32, where not null; the side must lie across rows.
  float* left_sums = nullptr;   // [rows]
  float* right_sums = nullptr;  // [columns]
};

/// What the product needs beside: aligned to 64 bytes.
struct MatrixScratch {
  int64_t left_bytes = 0;    // of all threads together; 0: the left side is read as it lies
  int64_t thread_bytes = 0;  // of each
};
MatrixScratch scratch_of(const MatrixProduct&);

/// How many parts the left side is laid out in, and the columns are divided into.
int64_t left_parts(const MatrixProduct&);
int64_t column_parts(const MatrixProduct&);

/// Lays out parts [first, last) of the left side. To be done before `multiply`, where left_bytes is
/// not 0; parts may be done at once.
void lay_out_left(const MatrixProduct&, int64_t first, int64_t last, void* left);

/// The columns of parts [first, last); parts may be done at once.
void multiply(
    const MatrixProduct&, int64_t first, int64_t last, const void* left, void* thread_scratch);

}  // namespace lockstep::ops::kernel
