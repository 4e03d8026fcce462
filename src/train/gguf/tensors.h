// Model parameters as tensors of a GGUF file: names, types and layout conversions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/description.h"
#include "train/gguf/header.h"

namespace lockstep::train::gguf {

/// File type of the weights, with llama.cpp's names and numbers. Biases, norms, learned positions
/// and routers are always float32.
enum class FileType : uint32_t { kF16 = 1, kQ4_0 = 2, kQ8_0 = 7, kQ4_K_M = 15 };
/// Returns "f16", "q8_0", "q4_0" and "q4_k_m".
std::vector<std::string> file_type_names();
FileType file_type(std::string_view name);

/// Returns a whole parameter in float32 on the CPU.
using Values = std::function<at::Tensor(const model::LayerSpec&, const model::ParameterSpec&)>;

struct Tensor {
  TensorInfo info;
  /// Returns the tensor in the file's layout, in float32.
  std::function<at::Tensor(const Values& values)> numbers;
};

/// Returns the tensors in the order in which the model uses them. kQ4_K_M is llama.cpp's mixture of
/// types:
///
/// - Q6_K: the head (or the tied embedding), and half of the value and MLP down matrices
/// - Q5_K: fused query-key-value matrices, the other value matrices of a 70B model (80 blocks and
///   fewer key-value heads than query heads), and attention outputs of models with eight experts
/// - Q8_0: keys and values of models with eight experts
/// - Q4_K: all other matrices
///
/// If a type's blocks do not divide the width, the next type is used, as in llama.cpp. Adds one
/// line to `notes` for each kind of tensor for which this happens.
std::vector<Tensor> tensors_of(
    const model::ModelConfig& config, FileType type, std::vector<std::string>& notes);

}  // namespace lockstep::train::gguf
