// Loads models from folders, presets and configurations.
#include "train/weights/model_loading.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/first_rank.h"
#include "base/format.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/object_store_state.h"
#include "model/description.h"
#include "model/encoder_head.h"
#include "nn/initialize.h"
#include "nn/low_rank.h"
#include "objects/store.h"
#include "train/weights/initial_factors.h"
#include "train/weights/mxfp4_experts.h"
#include "train/weights/packed_folder.h"
#include "train/weights/quantization.h"

namespace lockstep::train {
namespace {

/// Returns the parameters to read from a folder. Folders of encoders and T5 may contain any head or
/// none, so only the parameters of the body and of the wanted head are returned for them.
std::vector<model::ParameterSpec> parameters_of_folder(
    const model::ModelConfig& source, const model::ModelConfig& wanted) {
  if (!source.bidirectional && !source.is_encoder_decoder()) {
    return model::parameters_of(source);
  }
  const bool changes = wanted.head.classifies() || source.head.classifies();
  return model::parameters_of(changes ? model::with_head(source, wanted.head) : source);
}

bool is_of_head(const model::ParameterSpec& spec, const model::ModelConfig& config) {
  return spec.unit == config.layers + 1;
}

/// Returns true if the folder may lack the parameter.
bool may_be_missing(
    const model::ParameterSpec& spec,
    const model::ModelConfig& source,
    const model::ModelConfig& wanted) {
  const bool is_t5s =
      source.is_encoder_decoder() && (source.head.classifies() || wanted.head.classifies()) &&
      (spec.name.starts_with(model::kT5ClassifierHead) || spec.name == model::head_name(wanted));
  return is_t5s || (source.bidirectional && is_of_head(spec, source));
}

/// Returns true if the tensor belongs to an unused head.
bool is_of_other_head(
    const std::string& name, const model::ModelConfig& source, const model::ModelConfig& wanted) {
  if (source.is_encoder_decoder()) {
    return wanted.head.classifies() ? name == "lm_head.weight"
                                    : name.starts_with(model::kT5ClassifierHead);
  }
  if (!source.bidirectional) {
    return false;
  }
  static constexpr const char* kHeads[] = {
      "cls.", "lm_head.", "vocab_", "classifier.", "pre_classifier.", "qa_outputs.", "pooler."};
  return name.find(".pooler.") != std::string::npos ||
         std::any_of(std::begin(kHeads), std::end(kHeads), [&](const char* head) {
           return name.starts_with(head);
         });
}

/// Returns the tensors to read from a folder, without packed weights.
std::vector<checkpoint::WantedTensor> wanted_tensors(
    const model::ModelConfig& source,
    const model::ModelConfig& model,
    const std::vector<model::ParameterSpec>& parameters,
    const PackedFolder* packed,
    const Mxfp4Experts& experts) {
  std::vector<checkpoint::WantedTensor> wanted;
  for (const model::ParameterSpec& spec : parameters) {
    if ((packed == nullptr || !packed->holds(spec.name)) && !experts.holds(spec.name)) {
      wanted.push_back({spec.name, spec.shape, spec.aliases});
      wanted.back().is_optional = may_be_missing(spec, source, model);
      if (const auto& stack = spec.stacked) {
        wanted.back().stacked = {stack->name, stack->shape, stack->offset};
      }
    }
  }
  return wanted;
}

/// Reads the parameters of a model from the files of a folder.
class FolderWeights {
 public:
  FolderWeights(const model::ModelSource& source, const model::ModelConfig& wanted, uint64_t seed)
      : files_(source.folder),
        old_vocabulary_(source.config.vocab_size),
        seed_(seed) {
    std::optional<PackedFolder> packed;  // reads packed weights
    if (source.config.quantization) {
      packed.emplace(source);
    }
    const std::vector<model::ParameterSpec> asked = parameters_of_folder(source.config, wanted);
    experts_.emplace(files_, asked);
    bool has_further_layers = false;
    for (const std::string& extra : files_.match(wanted_tensors(
             source.config, wanted, asked, packed ? &*packed : nullptr, *experts_))) {
      const bool is_further = model::is_of_further_layers(extra, source.config);
      has_further_layers = has_further_layers || is_further;
      const bool is_known = is_further || is_of_other_head(extra, source.config, wanted);
      if (!is_known && (!packed || !packed->owns(extra)) && !experts_->owns(extra)) {
        warn_on_first_rank(fmt::format(
            "{} contains a tensor that the model does not have: {}",
            source.folder.string(),
            extra));
      }
    }
    if (has_further_layers) {
      log_info(
          "{} contains layers after the model's {}, which predict further tokens: they are neither "
          "trained nor saved",
          source.name,
          source.config.layers);
    }
    for (const model::ParameterSpec& spec : asked) {
      if (!may_be_missing(spec, source.config, wanted) || files_.has_matched(spec.name) ||
          (packed && packed->holds(spec.name))) {
        stored_elements_[spec.name] = spec.elements();
      }
    }
    wanted_ = model::parameters_by_name(wanted);
    const std::string head = model::head_name(wanted);  // empty if the head has no parameters
    const bool is_masked = source.config.bidirectional && !wanted.head.classifies();
    if (!is_masked && !head.empty() && !is_stored(wanted_.at(head))) {
      if (!wanted.head.classifies()) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format("{} contains a classifier, not a language model", source.folder.string()),
            "use its original language model");
      }
      log_info(
          "{} contains no classifier with these classes: it is initialized randomly", source.name);
    } else if (is_masked) {
      for (const model::LayerSpec& layer : model::head_layers(wanted)) {
        if (!is_stored(layer.weight())) {
          log_warning("{} contains no {}: it is initialized randomly", source.name, layer.prefix);
        }
      }
    }
  }

  /// Throws Error (data) if a parameter is neither stored in the folder nor in `others`.
  void require_all(const std::string& place, const std::set<std::string>& others) const {
    for (const auto& [name, spec] : wanted_) {
      if (!is_stored(spec) && !others.contains(name)) {
        throw Error(
            ErrorKind::kData,
            fmt::format(
                "{} contains no {} of shape [{}], and only training initializes weights randomly",
                place,
                name,
                fmt::join(spec.shape, ", ")),
            "use a folder of the whole model, and its own config.json");
      }
    }
  }

  void fill(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const {
    const model::ParameterSpec& spec = wanted_.at(name);
    const bool is_drawn = !is_stored(spec), grows = !is_drawn && is_smaller(spec);
    const at::Tensor grown = grows ? grown_embedding(spec, values.scalar_type()) : at::Tensor();
    const at::Tensor flat = values.view({-1});
    mesh::visit_runs(
        parameter.cut,
        parameter.shape,
        begin,
        begin + flat.numel(),
        [&](int64_t local, int64_t whole, int64_t count) {
          const at::Tensor run = flat.narrow(0, local - begin, count);
          if (is_drawn) {
            nn::fill_initial(run, spec, seed_, whole);
          } else if (grows) {
            run.copy_(grown.view({-1}).narrow(0, whole, count));
          } else if (experts_->holds(name)) {
            experts_->read(files_, name, whole, run);
          } else {
            files_.read(name, whole, run);
          }
        });
  }

 private:
  bool is_smaller(const model::ParameterSpec& spec) const {
    return stored_elements_.at(spec.name) < spec.elements();
  }
  /// Returns true if the folder contains the parameter with the wanted shape. For example, a
  /// classification head with another number of classes does not count.
  bool is_stored(const model::ParameterSpec& spec) const {
    const auto found = stored_elements_.find(spec.name);
    return found != stored_elements_.end() &&
           (spec.name != "score.weight" || found->second == spec.elements());
  }
  /// Returns the rows of the file followed by new rows. Reads the whole tensor because new rows are
  /// initialized near the mean of the existing ones.
  at::Tensor grown_embedding(const model::ParameterSpec& spec, at::ScalarType type) const {
    at::Tensor whole = at::zeros(spec.shape, at::dtype(type));
    files_.read(spec.name, 0, whole.view({-1}).narrow(0, 0, stored_elements_.at(spec.name)));
    if (whole.dim() > 1) {  // new elements of a bias are 0
      nn::initialize_new_rows(whole, spec, old_vocabulary_, seed_);
    }
    return whole;
  }

  checkpoint::ModelFolder files_;
  std::optional<Mxfp4Experts> experts_;
  int64_t old_vocabulary_;
  uint64_t seed_;
  std::map<std::string, int64_t> stored_elements_;
  std::map<std::string, model::ParameterSpec> wanted_;
};

/// Returns the fill of the model's parameters, without adapters. If the weights are only evaluated,
/// every parameter must be stored in the folder, except those in `of_adapter`.
parallel::ModelSpec::Fill fill_of(
    const model::ModelSource& source,
    const model::ModelConfig& config,
    const ModelRequest& request,
    const std::set<std::string>& of_adapter) {
  if (!source.has_weights) {
    return parallel::fill_at_random(config, request.seed);
  }
  const std::string what = fmt::format("loading the weights of {}", source.folder.string());
  const auto weights = in_context(what, [&] {
    auto opened = std::make_shared<const FolderWeights>(source, config, request.seed);
    if (request.is_evaluation) {
      opened->require_all(source.folder.string(), of_adapter);
    }
    return opened;
  });
  return [weights, what](
             const std::string& name,
             const parallel::ShardedParameter& parameter,
             int64_t begin,
             const at::Tensor& values) {
    in_context(what, [&] { weights->fill(name, parameter, begin, values); });
  };
}

/// Returns true if both tensors have the same type, shape and bytes.
bool are_equal(const checkpoint::TensorFiles& files, const std::string& a, const std::string& b) {
  const checkpoint::TensorEntry &first = files.tensor(a), &second = files.tensor(b);
  return first.dtype == second.dtype && first.shape == second.shape &&
         std::ranges::equal(files.bytes(a), files.bytes(b));
}

/// Clears `tie_word_embeddings` if the folder contains a head that differs from the embedding. In
/// this case the head was trained and the configuration is outdated. transformers does the same.
void untie_stored_head(model::ModelSource& source) {
  if (!source.has_weights || !source.config.ties_head() || source.config.bidirectional ||
      source.config.is_encoder_decoder() || source.config.quantization) {
    return;
  }
  model::ModelConfig untied = source.config;
  untied.tie_word_embeddings = false;
  const std::string head = model::head_name(untied);
  const checkpoint::ModelFolder folder(source.folder);
  const auto stored_head = folder.stored_name(head);
  const auto embedding = folder.stored_name(model::embedding_name(source.config));
  if (!stored_head || !embedding || are_equal(folder.files(), *stored_head, *embedding)) {
    return;
  }
  source.config = std::move(untied);
  log_warning(
      "{}: config.json sets tie_word_embeddings, but {} differs from {}; the head of the file is "
      "used, untied",
      source.name,
      *stored_head,
      *embedding);
}

model::ModelSource find_local_source(const std::string& path) {
  const std::filesystem::path folder(path);
  if (std::filesystem::exists(folder / model::kAdapterConfigName) &&
      !std::filesystem::exists(folder / "config.json")) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} is an adapter, not a model", path),
        fmt::format(
            "use its base model, {}, and pass the adapter as --adapter {} (lora.adapter={} to "
            "train it further)",
            model::read_lora_config(folder / model::kAdapterConfigName).base_model_name_or_path,
            path,
            path));
  }
  if (std::filesystem::is_directory(folder) && !std::filesystem::exists(folder / "config.json")) {
    const auto checkpoints = checkpoint::list_checkpoints(folder);
    if (!checkpoints.empty()) {
      return model::find_model(checkpoints.front().folder.string());
    }
  }
  return model::find_model(path);
}

}  // namespace

model::ModelSource find_source(const std::string& path, const std::string& preset) {
  if (path.empty() == preset.empty()) {
    throw Error(
        ErrorKind::kConfig,
        path.empty() ? "model.path or model.preset is required"
                     : "model.path and model.preset are both set",
        "set model.path=FOLDER (or a config.json, or a Hub name), or model.preset=" +
            fmt::format("{}", fmt::join(model::preset_names(), "|")));
  }
  if (!preset.empty()) {
    return model::preset_source(preset);
  }
  if (objects::is_remote(path)) {
    model::ModelSource source = find_source(checkpoint::fetch_model(path).string(), "");
    source.name = path;
    return source;
  }
  model::ModelSource source = find_local_source(path);
  untie_stored_head(source);
  return source;
}

void take_special_tokens(model::ModelConfig& config, const text::Tokenizer& tokenizer) {
  config.bos_token_id = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
  config.eos_token_ids.clear();
  if (tokenizer.eos()) {
    config.eos_token_ids.push_back(*tokenizer.eos());
  }
}

parallel::ModelSpec model_spec(const model::ModelSource& source, const ModelRequest& request) {
  parallel::ModelSpec spec{source.config, request.dtype, request.device, nullptr};
  spec.freeze = request.freeze;
  spec.float8 = request.float8;
  if (request.tokenizer_size && *request.tokenizer_size > source.config.vocab_size) {
    if (!request.resize_embeddings) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "the tokenizer has {} entries, but the embedding of {} only has {}",
              *request.tokenizer_size,
              source.name,
              source.config.vocab_size),
          "set model.resize_embeddings=true, or use the model's tokenizer");
    }
    spec.config = model::with_vocabulary(source.config, *request.tokenizer_size);
  }
  spec.config = model::with_head(std::move(spec.config), request.task.head);
  spec.objective = request.task.objective;
  std::optional<model::Adapters> adapters;
  if (request.adapter) {
    adapters = find_adapters(*request.adapter, spec.config);
    check_taken_base(adapters->config, source);
  }
  const std::set<std::string> trained = adapters ? adapters->trained : std::set<std::string>();
  spec.fill = fill_of(source, spec.config, request, trained);
  if (adapters) {
    spec.fill = with_initial_factors(*adapters, spec.config, std::move(spec.fill), request.seed);
  }
  request_packing(spec, request.quantization, source, trained);
  if (request.adapter) {
    request_adapters(spec, *request.adapter, source, request.seed);
  }
  return spec;
}

std::unique_ptr<nn::LanguageModel> load_model(
    const model::ModelSource& source, const ModelRequest& request) {
  const parallel::ModelSpec spec = model_spec(source, request);
  parallel::ShardedModel whole{nn::make_model(spec.config, spec.dtype, at::kMeta)};
  if (spec.packing != nullptr) {
    nn::pack_linears(*whole.model, *spec.packing);
  }
  if (spec.adapters != nullptr) {
    nn::add_adapters(*whole.model, *spec.adapters);
  }
  whole.source = [&](const std::string& name, int64_t begin, const at::Tensor& values) {
    spec.fill(name, {values.sizes().vec(), {}}, begin, values);
  };
  whole.make_values(spec.device);
  return std::move(whole.model);
}

at::ScalarType stored_type(const model::ModelSource& source) {
  if (!source.has_weights) {
    return at::kFloat;
  }
  // Packed weights and single tensors may have another type than the model.
  const nlohmann::json config = nlohmann::json::parse(source.config.json);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.contains(key) && config.at(key) == "float32") {
      return at::kFloat;
    }
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

std::optional<at::ScalarType> type_of_most_weights(const model::ModelSource& source) {
  if (!source.has_weights || source.config.quantization) {
    return std::nullopt;
  }
  const checkpoint::ModelFolder folder(source.folder);
  std::map<at::ScalarType, int64_t> elements;
  for (const std::string& name : folder.files().names()) {
    const checkpoint::TensorEntry& entry = folder.files().tensor(name);
    const auto type = checkpoint::scalar_type(entry.dtype);
    if (type && at::isFloatingType(*type)) {
      elements[*type] +=
          std::accumulate(entry.shape.begin(), entry.shape.end(), int64_t{1}, std::multiplies<>());
    }
  }
  const auto most =
      std::ranges::max_element(elements, {}, [](const auto& counted) { return counted.second; });
  return most == elements.end() ? std::nullopt : std::optional(most->first);
}

}  // namespace lockstep::train
