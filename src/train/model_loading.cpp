#include "train/model_loading.h"

#include <map>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "model/parameters.h"
#include "nn/initialize.h"

namespace lockstep::train {
namespace {

std::vector<checkpoint::WantedTensor> wanted_tensors(const model::ModelConfig& config) {
  std::vector<checkpoint::WantedTensor> wanted;
  for (const model::ParameterSpec& spec : model::parameters_of(config)) {
    checkpoint::WantedTensor tensor{spec.name, spec.shape, {}};
    if (config.tie_word_embeddings && spec.name == model::embedding_name(config)) {
      tensor.aliases = {"lm_head.weight"};
    }
    wanted.push_back(std::move(tensor));
  }
  return wanted;
}

void read_weights(
    nn::LanguageModel& model,
    const model::ModelConfig& stored,
    const std::filesystem::path& folder) {
  checkpoint::ModelFolder files(folder);
  for (const std::string& extra : files.match(wanted_tensors(stored))) {
    log_warning("{} holds a tensor that the model does not have: {}", folder.string(), extra);
  }
  const at::NoGradGuard no_grad;
  // A grown embedding has more rows than the file: the file's are its first.
  std::map<std::string, int64_t> elements;
  for (const model::ParameterSpec& spec : model::parameters_of(stored)) {
    elements[spec.name] = spec.elements();
  }
  model.visit_parameters([&](const std::string& name, at::Tensor& tensor) {
    files.read(name, 0, tensor.detach().view({-1}).narrow(0, 0, elements.at(name)));
  });
}

}  // namespace

model::ModelSource find_source(const std::string& path, const std::string& preset) {
  if (path.empty() == preset.empty()) {
    throw Error(
        ErrorKind::kConfig,
        path.empty() ? "no model is given" : "both model.path and model.preset are given",
        "give model.path=FOLDER (or a config.json, or a Hub name), or model.preset=" +
            fmt::format("{}", fmt::join(model::preset_names(), "|")));
  }
  if (!preset.empty()) {
    return model::preset_source(preset);
  }
  const std::filesystem::path folder(path);
  if (std::filesystem::is_directory(folder) && !std::filesystem::exists(folder / "config.json")) {
    const auto checkpoints = checkpoint::list_checkpoints(folder);
    if (!checkpoints.empty()) {
      return model::find_model(checkpoints.front().folder.string());
    }
  }
  return model::find_model(path);
}

void take_special_tokens(model::ModelConfig& config, const text::Tokenizer& tokenizer) {
  config.bos_token_id = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
  config.eos_token_ids.clear();
  if (tokenizer.eos()) {
    config.eos_token_ids.push_back(*tokenizer.eos());
  }
}

std::unique_ptr<nn::LanguageModel> load_model(
    const model::ModelSource& source, const ModelRequest& request) {
  model::ModelConfig config = source.config;
  if (request.tokenizer_size && *request.tokenizer_size > config.vocab_size) {
    if (!request.resize_embeddings) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "the tokenizer has {} entries and the embedding of {} only {}",
              *request.tokenizer_size,
              source.name,
              config.vocab_size),
          "set model.resize_embeddings=true, or give the tokenizer that belongs to the model");
    }
    config = model::with_vocabulary(config, *request.tokenizer_size);
  }
  auto model = nn::make_model(config, request.dtype, request.device);
  if (!source.has_weights) {
    nn::initialize(*model, request.seed);
    return model;
  }
  in_context(fmt::format("loading the weights of {}", source.folder.string()), [&] {
    read_weights(*model, source.config, source.folder);
  });
  if (config.vocab_size > source.config.vocab_size) {
    nn::initialize_new_rows(*model, source.config.vocab_size, request.seed);
  }
  return model;
}

at::ScalarType stored_type(const model::ModelSource& source) {
  if (!source.has_weights) {
    return at::kFloat;
  }
  const checkpoint::ModelFolder folder(source.folder);
  for (const std::string& name : folder.files().names()) {
    const auto type = checkpoint::scalar_type(folder.files().tensor(name).dtype);
    if (type == at::kBFloat16) {
      return at::kBFloat16;
    }
  }
  return at::kFloat;
}

}  // namespace lockstep::train
