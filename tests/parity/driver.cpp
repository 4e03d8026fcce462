// Runs models for the parity tests: parity_driver CASE_FOLDER...
// Each folder holds a Hugging Face folder "model" and "input.safetensors": ids and labels [B, T],
// batches [S, B, T], prompt [P], new_tokens [1]; for an encoder-decoder also source and source_mask
// [B, S'], sources [S, B, S']. Into each it writes "output.safetensors" (logits,
// loss, grad.NAME, losses [S] of S AdamW steps, generated), and "saved", a folder as we save it.
// Weights are computed with in float32, or in bfloat16 where the folder's name ends with
// "bfloat16".
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/safetensors.h"
#include "model/description.h"
#include "model/source.h"
#include "nn/generate.h"
#include "nn/language_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using Tensors = std::map<std::string, Tensor>;

void write_tensors(const fs::path& path, const Tensors& tensors) {
  std::vector<checkpoint::TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, checkpoint::file_dtype(tensor.scalar_type()), tensor.sizes().vec()});
  }
  const auto encoded = checkpoint::encode_safetensors_header(std::move(entries));
  std::string text = encoded.bytes;
  for (const auto& entry : encoded.layout.tensors) {
    const Tensor tensor = tensors.at(entry.name).contiguous();
    text.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  write_file_atomically(path, text);
}

std::unique_ptr<nn::LanguageModel> load(const model::ModelSource& source, at::ScalarType type) {
  auto model = nn::make_model(source.config, type, at::kCPU);
  checkpoint::ModelFolder folder(source.folder);
  std::vector<checkpoint::WantedTensor> wanted;
  for (const auto& parameter : model::parameters_of(source.config)) {
    wanted.push_back({parameter.name, parameter.shape, parameter.aliases});
  }
  folder.match(wanted);
  model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    folder.read(name, 0, parameter.detach());
  });
  return model;
}

Tensors parameters_of(nn::LanguageModel& model) {
  Tensors result;
  model.visit_parameters(
      [&](const std::string& name, Tensor& parameter) { result[name] = parameter; });
  return result;
}

/// torch.optim.AdamW with its defaults and one weight decay for all.
Tensor train(nn::LanguageModel& model, const Tensor& batches, const Tensor& sources) {
  constexpr double kRate = 1e-3, kDecay = 0.01, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;
  std::map<std::string, std::pair<Tensor, Tensor>> moments;
  std::vector<double> losses;
  for (int64_t step = 1; step <= batches.size(0); ++step) {
    nn::ForwardInputs inputs;
    inputs.ids = batches[step - 1];
    inputs.targets = nn::next_tokens(inputs.ids);
    inputs.source = sources.defined() ? sources[step - 1] : Tensor();
    const Tensor loss = model.loss(inputs) / (inputs.ids.size(0) * (inputs.ids.size(1) - 1));
    loss.backward();
    losses.push_back(loss.item<double>());
    const at::NoGradGuard no_gradient;
    model.visit_parameters([&](const std::string& name, Tensor& parameter) {
      const Tensor& gradient = parameter.grad();
      auto& [mean, square] =
          moments.try_emplace(name, at::zeros_like(parameter), at::zeros_like(parameter))
              .first->second;
      parameter.mul_(1 - kRate * kDecay);
      mean.mul_(kBeta1).add_(gradient, 1 - kBeta1);
      square.mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
      const double c1 = 1 - std::pow(kBeta1, step), c2 = 1 - std::pow(kBeta2, step);
      parameter.addcdiv_(mean, square.sqrt() / std::sqrt(c2) + kEpsilon, -kRate / c1);
      parameter.mutable_grad().zero_();
    });
  }
  return at::tensor(losses, at::kDouble);
}

void run_case(const fs::path& folder) {
  const auto source = model::find_model((folder / "model").string());
  const bool is_low = folder.filename().string().ends_with("bfloat16");
  const auto model = load(source, is_low ? at::kBFloat16 : at::kFloat);
  const checkpoint::TensorFiles input(folder, "input", ErrorKind::kData);
  nn::ForwardInputs inputs;
  inputs.ids = input.read_whole("ids");
  inputs.targets = nn::next_tokens(input.read_whole("labels"));
  Tensor sources;
  if (source.config.is_encoder_decoder()) {
    inputs.source = input.read_whole("source");
    inputs.source_mask = input.read_whole("source_mask").to(at::kBool);
    sources = input.read_whole("sources");
  }
  Tensors output;
  output["logits"] = model->logits(inputs).detach();
  const Tensor loss = model->loss(inputs);
  loss.backward();
  output["loss"] = loss.detach().view({1});
  for (const auto& [name, parameter] : parameters_of(*model)) {
    output["grad." + name] = parameter.grad().clone();
    parameter.mutable_grad().zero_();
  }
  const Tensor prompt = input.read_whole("prompt");
  nn::GenerateOptions options;
  options.max_new_tokens = input.read_whole("new_tokens").item<int64_t>();
  const auto* first = prompt.const_data_ptr<int64_t>();
  const auto generated = nn::generate(*model, {first, first + prompt.numel()}, options);
  output["generated"] = at::tensor(generated.ids, at::kLong);
  fs::create_directories(folder / "saved");
  Tensors saved;
  for (const auto& [name, parameter] : parameters_of(*model)) {
    saved[name] = parameter.detach();
  }
  write_tensors(folder / "saved" / "model.safetensors", saved);
  write_file_atomically(
      folder / "saved" / "config.json",
      model::to_json(source.config, is_low ? "bfloat16" : "float32"));
  output["losses"] = train(*model, input.read_whole("batches"), sources);
  write_tensors(folder / "output.safetensors", output);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    try {
      lockstep::run_case(argv[i]);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", argv[i], error.what());
      return 1;
    }
  }
  return 0;
}
