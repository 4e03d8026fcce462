// Creates, loads and saves adapters.
#include "train/weights/adapters.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "checkpoint/object_store_state.h"
#include "nn/decomposed.h"
#include "objects/store.h"
#include "plan/from_config/adapters.h"
#include "train/weights/adapter_base.h"
#include "train/weights/adapter_values.h"
#include "train/weights/combined_adapters.h"
#include "train/weights/initial_factors.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

/// Initial values of a model with an adapter. Trained parameters are read from the adapter's
/// folder, or drawn at random if there is no folder. All other parameters are read from the base
/// model.
class AdaptedFill {
 public:
  AdaptedFill(
      std::shared_ptr<const model::Adapters> adapters,
      std::shared_ptr<const AdapterValues> saved,
      const model::ModelConfig& config,
      parallel::ModelSpec::Fill base,
      uint64_t seed)
      : adapters_(std::move(adapters)),
        saved_(std::move(saved)),
        base_(std::move(base)),
        own_(model::adapter_parameters(*adapters_)),
        drawn_(parallel::fill_at_random(own_, seed)),
        together_(factors_made_together(*adapters_, config)) {
    std::vector<model::LayerSpec> layers = model::describe(config);
    if (const auto head = model::tied_head(config)) {
      layers.push_back(*head);
    }
    for (model::LayerSpec& table : model::embeddings_of_stacks(config)) {
      layers.push_back(std::move(table));
    }
    for (model::LayerSpec& layer : layers) {
      std::string prefix = layer.prefix;
      layers_.emplace(std::move(prefix), std::move(layer));
    }
  }

  void operator()(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const {
    if (saved_ != nullptr && saved_->has(name)) {
      saved_->fill(name, parameter, begin, values);
    } else if (const auto layer = model::layer_of_magnitudes(name)) {
      fill_magnitudes(*layer, parameter, begin, values);
    } else if (const auto table = model::layer_of_rows(name)) {
      copy_part(rows_of(*table), parameter, begin, values);
    } else {
      const bool is_drawn = own_.count(name) > 0 && together_.count(name) == 0;
      (is_drawn ? drawn_ : base_)(name, parameter, begin, values);
    }
  }

 private:
  at::Tensor whole(const model::ParameterSpec& parameter) const {
    at::Tensor values = at::empty(parameter.shape, at::kFloat);
    (*this)(parameter.name, {parameter.shape, {}}, 0, values);
    return values;
  }
  /// Initializes DoRA magnitudes with the norms of the weight's rows.
  void fill_magnitudes(
      const std::string& prefix,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const {
    const model::LayerSpec& layer = layers_.at(prefix);
    const model::Adapter& adapter = adapters_->of_layers.at(prefix);
    const at::Tensor weight = whole(layer.weight());
    const at::Tensor norms = nn::row_norms(
        layer.has_inputs_first() ? weight.t() : weight,
        whole(adapter.parameters[0]),
        whole(adapter.parameters[1]),
        adapter.scale);
    copy_part(norms, parameter, begin, values);
  }

  /// Returns the embedding rows of the tokens that are trained separately.
  at::Tensor rows_of(const std::string& prefix) const {
    const model::ParameterSpec& table = layers_.at(prefix).weight();
    const model::Adapter& adapter = adapters_->of_layers.at(prefix);
    const at::Tensor rows = at::empty(adapter.parameters.front().shape, at::kFloat);
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const int64_t first = adapter.tokens[static_cast<size_t>(i)] * rows.size(1);
      (*this)(table.name, {table.shape, {}}, first, rows[i]);
    }
    return rows;
  }

  std::shared_ptr<const model::Adapters> adapters_;
  std::shared_ptr<const AdapterValues> saved_;  // null: initialize randomly
  parallel::ModelSpec::Fill base_;
  std::map<std::string, model::ParameterSpec> own_;
  parallel::ModelSpec::Fill drawn_;
  std::set<std::string> together_;  // initialized in pairs (initial_factors.h)
  std::map<std::string, model::LayerSpec> layers_;
};

/// Returns the base model name that is written to PEFT's configuration: the path for a folder,
/// otherwise the name that the user gave.
std::string name_of(const model::ModelSource& base) {
  using Kind = model::ModelSource::Kind;
  return base.kind == Kind::kFolder || base.kind == Kind::kConfigFile
             ? fs::absolute(base.folder).lexically_normal().string()
             : base.name;
}

/// Loads a saved adapter to be combined with others. Such an adapter may only contain factors.
AdapterRequest::Part part_of(const std::string& folder, double weight) {
  std::optional<AdapterRequest> saved = saved_adapter(folder);
  if (!saved) {
    throw Error(
        ErrorKind::kConfig, "--adapter: the folder's name is empty", "give the name of a folder");
  }
  const model::LoraConfig& config = saved->config;
  const char* more = config.use_dora                                 ? "use_dora"
                     : !config.modules_to_save.empty()               ? "modules_to_save"
                     : !config.trainable_tokens.empty()              ? "trainable_token_indices"
                     : config.bias != model::LoraConfig::Bias::kNone ? "bias"
                     : take_from_base(config)                        ? "init_lora_weights"
                                                                     : nullptr;
  if (more != nullptr) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} was trained with {}, so it contains more than factors", folder, more),
        "use it alone and without --adapter-weight, or merge it first (lockstep export --merge)");
  }
  if (!std::isfinite(weight)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--adapter-weight {} is not a finite number", weight),
        "give a number such as 0.5");
  }
  return {std::move(saved->config), std::move(saved->folder), weight};
}

constexpr const char* kProblem = "problem_type";  // key next to the labels

/// Returns the classification head and its class names, if the folder contains them.
std::optional<model::HeadSpec> head_of(const fs::path& folder) {
  const checkpoint::TensorFiles files = open_adapter(folder);
  std::string rows;
  for (const char* name : {"score.weight", "classifier.weight", "classifier.out_proj.weight"}) {
    rows = files.contains(model::peft_name(name)) ? model::peft_name(name) : rows;
  }
  if (rows.empty()) {
    return std::nullopt;
  }
  model::HeadSpec head{model::HeadSpec::Kind::kClassifier};
  const nlohmann::json names =
      fs::exists(folder / kLabelsName) ? read_json(folder / kLabelsName) : nlohmann::json::object();
  for (int64_t label = 0; label < files.tensor(rows).shape.at(0); ++label) {
    const auto name = names.find(std::to_string(label));
    head.labels.push_back(
        name != names.end() && name->is_string() ? name->get<std::string>()
                                                 : fmt::format("LABEL_{}", label));
  }
  const auto problem = names.find(kProblem);
  if (problem != names.end() && problem->is_string()) {
    head.problem = model::parse_problem_type(problem->get<std::string>()).value_or(head.problem);
  }
  return head;
}

}  // namespace

model::GenerationConfig generation_with(
    const model::ModelSource& base, const std::optional<AdapterRequest>& adapter) {
  const std::filesystem::path folder = !adapter                 ? std::filesystem::path()
                                       : adapter->parts.empty() ? adapter->folder
                                                                : adapter->parts.front().folder;
  if (folder.empty()) {
    return base.generation;
  }
  model::GenerationConfig own = model::read_generation_config(folder);
  return own.text.empty() ? base.generation : own;
}

std::string labels_json(const model::HeadSpec& head) {
  nlohmann::ordered_json names = nlohmann::ordered_json::object();
  for (size_t label = 0; label < head.labels.size(); ++label) {
    names[std::to_string(label)] = head.labels[label];
  }
  names[kProblem] = model::name_of(head.problem);
  return names.dump(2) + "\n";
}

model::ModelConfig config_with(
    const model::ModelConfig& model, const std::optional<AdapterRequest>& adapter) {
  return adapter && adapter->head ? model::with_head(model, *adapter->head) : model;
}

std::optional<AdapterRequest> adapter_request(const config::LoraSection& section) {
  if (section == config::LoraSection{}) {
    return std::nullopt;
  }
  if (!section.adapter.empty()) {
    AdapterRequest request = saved_adapter(section.adapter).value();
    request.config.lora_dropout = section.lora_dropout.value_or(request.config.lora_dropout);
    return request;
  }
  AdapterRequest request;
  request.config = plan::lora_config_of(section);
  return request;
}

std::optional<AdapterRequest> saved_adapter(const fs::path& folder) {
  if (folder.empty()) {
    return std::nullopt;
  }
  if (objects::is_remote(folder.string())) {
    return saved_adapter(checkpoint::fetch_model(folder.string()));
  }
  fs::path found = folder;
  if (fs::is_directory(folder) && !fs::exists(folder / model::kAdapterConfigName)) {
    const auto checkpoints = checkpoint::list_checkpoints(folder);
    found = checkpoints.empty() ? folder : checkpoints.front().folder;
  }
  if (!fs::exists(found / model::kAdapterConfigName)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} contains no adapter: {} is missing", folder.string(), model::kAdapterConfigName),
        "use a folder saved by PEFT or by a run with lora keys");
  }
  return AdapterRequest{
      model::read_lora_config(found / model::kAdapterConfigName), found, head_of(found)};
}

std::string tokenizer_path(const std::string& given, const std::optional<AdapterRequest>& adapter) {
  const bool has_one = given.empty() && adapter && !adapter->folder.empty() &&
                       fs::exists(adapter->folder / "tokenizer.json");
  return has_one ? adapter->folder.string() : given;
}

std::optional<AdapterRequest> saved_adapters(const AdapterFlags& flags) {
  if (!flags.weights.empty() && flags.weights.size() != flags.folders.size()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} --adapter-weight for {} --adapter", flags.weights.size(), flags.folders.size()),
        "give one weight per adapter, in order, or none: all are then 1");
  }
  if (flags.folders.empty()) {
    return std::nullopt;
  }
  if (flags.folders.size() == 1 && flags.weights.empty()) {
    return saved_adapter(flags.folders.front());
  }
  AdapterRequest request;
  request.combination = flags.combination == "linear" ? AdapterRequest::Combination::kLinear
                                                      : AdapterRequest::Combination::kCat;
  for (size_t i = 0; i < flags.folders.size(); ++i) {
    const double weight = flags.weights.empty() ? 1 : flags.weights[i];
    request.parts.push_back(part_of(flags.folders[i], weight));
  }
  request.config = request.parts.front().config;
  return request;
}

model::Adapters find_adapters(const AdapterRequest& request, const model::ModelConfig& model) {
  if (!request.parts.empty()) {
    return combine(request, model).adapters;
  }
  const bool is_saved = !request.folder.empty();
  return model::resolve_adapters(
      request.config,
      model,
      is_saved ? model::AdapterOrigin::kSaved : model::AdapterOrigin::kNew,
      is_saved ? ranks_of(open_adapter(request.folder)) : std::map<std::string, int64_t>{});
}

void request_adapters(
    parallel::ModelSpec& spec,
    const AdapterRequest& request,
    const model::ModelSource& base,
    uint64_t seed) {
  std::shared_ptr<model::Adapters> adapters;
  std::shared_ptr<const AdapterValues> values;
  for (const AdapterRequest::Part& part : request.parts) {
    check_base(part.folder, base);
  }
  if (!request.parts.empty()) {
    CombinedAdapters combined = combine(request, spec.config);
    adapters = std::make_shared<model::Adapters>(std::move(combined.adapters));
    values = std::move(combined.values);
  } else {
    adapters = std::make_shared<model::Adapters>(find_adapters(request, spec.config));
    if (!request.folder.empty()) {
      check_base(request.folder, base);
      values = std::make_shared<const SavedAdapterValues>(
          open_adapter(request.folder), *adapters, spec.config);
    }
  }
  adapters->config.base_model_name_or_path = name_of(base);
  adapters->base_hash = base_hash(base);
  spec.adapters = adapters;
  const auto fill = std::make_shared<const AdaptedFill>(
      adapters, std::move(values), spec.config, std::move(spec.fill), seed);
  spec.fill = [fill](
                  const std::string& name,
                  const parallel::ShardedParameter& parameter,
                  int64_t begin,
                  const at::Tensor& values) { (*fill)(name, parameter, begin, values); };
}

std::string adapter_config(const model::Adapters& adapters, const model::ModelConfig& model) {
  model::LoraConfig config = adapters.config;
  if (config.task_type.empty() &&
      !model.bidirectional) {  // PEFT has no task type for masked language modeling
    config.task_type = model.is_encoder_decoder() ? "SEQ_2_SEQ_LM" : "CAUSAL_LM";
  }
  return model::to_json(config, model.family == model::Family::kGpt2);
}

SavedNames saved_names(
    const model::Adapters* adapters, const std::string& file_group, const std::string& name) {
  if (adapters == nullptr || file_group != "model") {
    return {file_group, {name}};
  }
  const auto found = adapters->file_names.find(name);
  return {
      std::string(kAdapterGroup),
      found == adapters->file_names.end() ? std::vector<std::string>{} : found->second};
}

}  // namespace lockstep::train
