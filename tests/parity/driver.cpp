// Runs models for the parity tests: parity_driver CASE_FOLDER...
// Each folder contains a Hugging Face folder "model" and "input.safetensors": ids and labels
// [B, T], batches [S, B, T], prompt [P], new_tokens [1]; for an encoder-decoder also source and
// source_mask [B, S'], sources [S, B, S']; for an encoder attention_mask and token_type_ids [B, T].
// The driver writes "output.safetensors" (logits, loss, grad.NAME, losses [S] of S AdamW steps,
// generated) to each folder, and the model that Lockstep saves to "saved". If the folder contains a
// folder "adapter", only this adapter is trained and saved. Weights are float32, or bfloat16 if the
// folder's name ends with "bfloat16".
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
#include "model/source.h"
#include "nn/generate.h"
#include "nn/language_model.h"
#include "train/weights/adapters.h"
#include "train/weights/model_loading.h"
#include "train/weights/stacks.h"

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

/// Those that are trained.
Tensors parameters_of(nn::LanguageModel& model) {
  Tensors result;
  model.visit_parameters([&](const std::string& name, Tensor& parameter) {
    if (parameter.requires_grad()) {
      result[name] = parameter;
    }
  });
  return result;
}

nn::Targets targets_of(const nn::LanguageModel& model, const Tensor& labels) {
  return model.config().bidirectional ? nn::own_tokens(labels) : nn::next_tokens(labels);
}

/// torch.optim.AdamW with its defaults and one weight decay for all.
Tensor train_steps(nn::LanguageModel& model, const Tensor& batches, const Tensor& sources) {
  constexpr double kRate = 1e-3, kDecay = 0.01, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;
  std::map<std::string, std::pair<Tensor, Tensor>> moments;
  std::vector<double> losses;
  for (int64_t step = 1; step <= batches.size(0); ++step) {
    nn::ForwardInputs inputs;
    inputs.ids = batches[step - 1];
    inputs.targets = targets_of(model, inputs.ids);
    inputs.source = sources.defined() ? sources[step - 1] : Tensor();
    const Tensor loss = model.loss(inputs) / inputs.targets.counts.sum().item<double>();
    loss.backward();
    losses.push_back(loss.item<double>());
    const at::NoGradGuard no_gradient;
    for (auto& [name, parameter] : parameters_of(model)) {
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
    }
  }
  return at::tensor(losses, at::kDouble);
}

/// As checkpoints are: what is trained, and what says of what it is.
void save(
    const fs::path& folder,
    nn::LanguageModel& model,
    const model::Adapters* adapters,
    const model::ModelConfig& config) {
  fs::create_directories(folder);
  Tensors saved;
  Tensors held = parameters_of(model);
  const auto stacks = adapters == nullptr ? train::written_stacks(config)
                                          : std::map<std::string, checkpoint::StackedTensor>{};
  if (adapters == nullptr) {
    model.visit_parameters(
        [&](const std::string& name, Tensor& parameter) { held[name] = parameter; });
  }
  for (const auto& [name, parameter] : held) {
    if (const auto found = stacks.find(name); found != stacks.end()) {
      const auto& [stack, shape, offset] = found->second;
      Tensor& whole = saved.try_emplace(stack, at::zeros(shape, parameter.options())).first->second;
      whole.view({-1}).narrow(0, offset, parameter.numel()).copy_(parameter.detach().flatten());
      continue;
    }
    for (const std::string& file_name : train::saved_names(adapters, "model", name).names) {
      saved[file_name] = parameter.detach();
    }
  }
  const std::string group = train::saved_names(adapters, "model", "").file_group;
  write_tensors(folder / (group + ".safetensors"), saved);
  const at::ScalarType type = saved.begin()->second.scalar_type();
  const char* name = type == at::kBFloat16 ? "bfloat16" : "float32";
  write_file_atomically(
      folder / (adapters == nullptr ? "config.json" : model::kAdapterConfigName),
      adapters == nullptr ? model::to_json(config, name)
                          : train::adapter_config(*adapters, config));
}

void run_case(const fs::path& folder) {
  const auto source = model::find_model((folder / "model").string());
  const bool is_low = folder.filename().string().ends_with("bfloat16");
  train::ModelRequest request;
  request.dtype = is_low ? at::kBFloat16 : at::kFloat;
  if (fs::exists(folder / "adapter")) {
    request.adapter = train::saved_adapter(folder / "adapter");
  }
  const auto model = train::load_model(source, request);
  const checkpoint::TensorFiles input(folder, "input", ErrorKind::kData);
  nn::ForwardInputs inputs;
  inputs.ids = input.read_whole("ids");
  inputs.targets = targets_of(*model, input.read_whole("labels"));
  const bool encodes = source.config.bidirectional;
  if (encodes) {  // rows with padding: it is a document by itself
    const Tensor lengths = input.read_whole("attention_mask").sum(1, /*keepdim=*/true);
    const Tensor places = at::arange(inputs.ids.size(1));
    inputs.document_starts = at::where(places.lt(lengths), 0, lengths);
    inputs.positions = places - inputs.document_starts;
    inputs.token_types = input.read_whole("token_type_ids");
  }
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
  if (!encodes) {
    const Tensor prompt = input.read_whole("prompt");
    nn::GenerateOptions options;
    options.max_new_tokens = input.read_whole("new_tokens").item<int64_t>();
    const auto* first = prompt.const_data_ptr<int64_t>();
    const auto generated = nn::generate(*model, {first, first + prompt.numel()}, options);
    output["generated"] = at::tensor(generated.ids, at::kLong);
  }
  save(folder / "saved", *model, train::model_spec(source, request).adapters.get(), source.config);
  output["losses"] = train_steps(*model, input.read_whole("batches"), sources);
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
