// A model's parameters as the tensors of a GGUF file: their names there, their types, and what is
// done to their numbers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/description.h"
#include "train/gguf/header.h"

namespace lockstep::train::gguf {

/// What a file's weights are, by llama.cpp's names of files. Biases, norms, learned positions and
/// routers are float32 in each.
enum class FileType : uint32_t { kF16 = 1, kQ4_0 = 2, kQ8_0 = 7, kQ4_K_M = 15 };
/// "f16", "q8_0", "q4_0", "q4_k_m".
std::vector<std::string> file_type_names();
FileType file_type(std::string_view name);

/// The numbers of a parameter, float32, whole, on the CPU.
using Values = std::function<at::Tensor(const model::LayerSpec&, const model::ParameterSpec&)>;

struct Tensor {
  TensorInfo info;
  /// As it stands in the file, but in float32.
  std::function<at::Tensor(const Values& values)> numbers;
};

/// In the order of use. Of Q4_K_M the types are llama.cpp's mixture: the head (or the embedding
/// that is it) and half of the values' and of the MLPs' last matrices in Q6_K, fused queries, keys
/// and values in Q5_K, the rest in Q4_K; the other values of a 70B (80 blocks, fewer key-value
/// heads than query heads) in Q5_K; between eight experts keys and values in Q8_0, and attention's
/// output in Q5_K. A width that a type's blocks do not divide takes the next one as llama.cpp does;
/// `notes` says so of each kind of tensor.
std::vector<Tensor> tensors_of(
    const model::ModelConfig& config, FileType type, std::vector<std::string>& notes);

}  // namespace lockstep::train::gguf
