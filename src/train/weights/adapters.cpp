#include "train/weights/adapters.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "config/core/scalar.h"
#include "nn/decomposed.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

/// The keys that are given, over what the file says.
void take_keys(const config::LoraSection& section, model::LoraConfig& config) {
  const auto take = [](const auto& given, auto& value) { value = given.value_or(value); };
  take(section.r, config.r);
  take(section.lora_alpha, config.lora_alpha);
  take(section.lora_dropout, config.lora_dropout);
  take(section.use_rslora, config.use_rslora);
  take(section.use_dora, config.use_dora);
  take(section.ensure_weight_tying, config.ensure_weight_tying);
  take(section.init_lora_weights, config.init_lora_weights);
  const std::vector<std::string>& targets = section.target_modules;
  if (targets == std::vector<std::string>{"all-linear"}) {
    config.target_modules = {};
    config.targets_all_linear = true;
  } else if (!targets.empty()) {
    config.target_modules = model::parse_module_names("lora.target_modules", targets);
    config.targets_all_linear = false;
  }
  if (!section.exclude_modules.empty()) {
    config.exclude_modules =
        model::parse_module_names("lora.exclude_modules", section.exclude_modules);
  }
  const auto take_list = [](const auto& given, auto& value) {
    value = given.empty() ? value : given;
  };
  take_list(section.modules_to_save, config.modules_to_save);
  take_list(section.layers_pattern, config.layers_pattern);
  take_list(section.rank_pattern, config.rank_pattern);
  take_list(section.alpha_pattern, config.alpha_pattern);
  if (!section.layers_to_transform.empty()) {
    config.layers_to_transform.clear();
    for (const std::string& layer : section.layers_to_transform) {
      config.layers_to_transform.push_back(config::to_integer(layer).value());
    }
  }
  if (section.bias) {
    using Bias = model::LoraConfig::Bias;
    config.bias = *section.bias == "all"         ? Bias::kAll
                  : *section.bias == "lora_only" ? Bias::kLoraOnly
                                                 : Bias::kNone;
  }
}

checkpoint::TensorFiles open_tensors(const fs::path& folder) {
  std::error_code ignored;
  if (!checkpoint::TensorFiles::exist(folder, kAdapterGroup) &&
      fs::exists(folder / "adapter_model.bin", ignored)) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{} holds its adapter as a pickle (adapter_model.bin) alone, and nothing is unpickled "
            "here",
            folder.string()),
        "load it with PEFT where you trust it, and save it again");
  }
  return {folder, std::string(kAdapterGroup), ErrorKind::kData};
}

/// What an adapter's folder says of ranks: the rows of each A, by its layer.
std::map<std::string, int64_t> ranks_of(const checkpoint::TensorFiles& files) {
  constexpr std::string_view kFactor = ".lora_A.weight";
  const std::string prefix = model::peft_name("");
  std::map<std::string, int64_t> ranks;
  for (const std::string& name : files.names()) {
    const checkpoint::TensorEntry& tensor = files.tensor(name);
    if (name.starts_with(prefix) && name.ends_with(kFactor) && tensor.shape.size() == 2) {
      ranks[name.substr(prefix.size(), name.size() - prefix.size() - kFactor.size())] =
          tensor.shape[0];
    }
  }
  return ranks;
}

/// The values of all that an adapter trains, from its folder.
class AdapterWeights {
 public:
  AdapterWeights(
      checkpoint::TensorFiles files,
      const model::Adapters& adapters,
      const model::ModelConfig& config)
      : files_(std::move(files)),
        file_names_(adapters.file_names) {
    std::map<std::string, model::ParameterSpec> specs = model::parameters_by_name(config);
    specs.merge(model::adapter_parameters(adapters));
    std::set<std::string> known;
    std::vector<std::string> problems;
    for (const auto& [name, names] : file_names_) {
      known.insert(names.begin(), names.end());
      if (!files_.contains(names.front())) {
        problems.push_back("it lacks " + names.front());
      } else if (const auto& shape = files_.tensor(names.front()).shape;
                 shape != specs.at(name).shape) {
        problems.push_back(fmt::format(
            "{} is {}, and the model needs {}",
            names.front(),
            fmt::join(shape, " x "),
            fmt::join(specs.at(name).shape, " x ")));
      }
    }
    for (const std::string& name : files_.names()) {
      if (known.count(name) == 0) {
        problems.push_back("the model has no place for its " + name);
      }
    }
    refuse(problems);
  }

  bool has(const std::string& name) const { return file_names_.count(name) > 0; }
  void fill(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const {
    const at::Tensor flat = values.view({-1});
    mesh::visit_runs(
        parameter.cut,
        parameter.shape,
        begin,
        begin + flat.numel(),
        [&](int64_t local, int64_t whole, int64_t count) {
          files_.read(file_names_.at(name).front(), whole, flat.narrow(0, local - begin, count));
        });
  }

 private:
  void refuse(const std::vector<std::string>& problems) const {
    constexpr size_t kMostShown = 4;
    if (problems.empty()) {
      return;
    }
    const auto shown =
        problems.begin() + std::min<std::ptrdiff_t>(std::ssize(problems), kMostShown);
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the adapter {} does not fit the model: {}{}",
            files_.folder().string(),
            fmt::join(problems.begin(), shown, "; "),
            problems.size() > kMostShown
                ? fmt::format("; and {} problems more", problems.size() - kMostShown)
                : ""),
        "give the model that it was trained beside; its adapter_config.json names it");
  }

  checkpoint::TensorFiles files_;
  std::map<std::string, std::vector<std::string>> file_names_;
};

/// The values of an adapted model: of what the adapter trains those of its folder, else drawn ones;
/// of the rest the base's.
class AdaptedFill {
 public:
  AdaptedFill(
      std::shared_ptr<const model::Adapters> adapters,
      std::shared_ptr<const AdapterWeights> weights,
      const model::ModelConfig& config,
      parallel::ModelSpec::Fill base,
      uint64_t seed)
      : adapters_(std::move(adapters)),
        weights_(std::move(weights)),
        base_(std::move(base)),
        own_(model::adapter_parameters(*adapters_)),
        drawn_(parallel::fill_at_random(own_, seed)) {
    for (model::LayerSpec& layer : model::describe(config)) {
      std::string prefix = layer.prefix;
      layers_.emplace(std::move(prefix), std::move(layer));
    }
  }

  void operator()(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const {
    if (weights_ != nullptr && weights_->has(name)) {
      weights_->fill(name, parameter, begin, values);
    } else if (const auto layer = model::layer_of_magnitudes(name)) {
      fill_magnitudes(*layer, parameter, begin, values);
    } else {
      (own_.count(name) > 0 ? drawn_ : base_)(name, parameter, begin, values);
    }
  }

 private:
  at::Tensor whole(const model::ParameterSpec& parameter) const {
    at::Tensor values = at::empty(parameter.shape, at::kFloat);
    (*this)(parameter.name, {parameter.shape, {}}, 0, values);
    return values;
  }
  /// DoRA's begin as the norms of the rows that they are the sizes of.
  void fill_magnitudes(
      const std::string& prefix,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const {
    const model::LayerSpec& layer = layers_.at(prefix);
    const model::Adapter& adapter = adapters_->of_layers.at(prefix);
    const at::Tensor weight = whole(layer.weight());
    const at::Tensor norms = nn::row_norms(
        layer.in_first ? weight.t() : weight,
        whole(adapter.parameters[0]),
        whole(adapter.parameters[1]),
        adapter.scale);
    const at::Tensor flat = values.view({-1});
    mesh::visit_runs(
        parameter.cut,
        parameter.shape,
        begin,
        begin + flat.numel(),
        [&](int64_t local, int64_t first, int64_t count) {
          flat.narrow(0, local - begin, count).copy_(norms.narrow(0, first, count));
        });
  }

  std::shared_ptr<const model::Adapters> adapters_;
  std::shared_ptr<const AdapterWeights> weights_;  // null: all are drawn
  parallel::ModelSpec::Fill base_;
  std::map<std::string, model::ParameterSpec> own_;
  parallel::ModelSpec::Fill drawn_;
  std::map<std::string, model::LayerSpec> layers_;
};

/// As PEFT writes it: what the user named; of a folder where it lies.
std::string name_of(const model::ModelSource& base) {
  using Kind = model::ModelSource::Kind;
  return base.kind == Kind::kFolder || base.kind == Kind::kConfigFile
             ? fs::absolute(base.folder).lexically_normal().string()
             : base.name;
}

constexpr const char* kProblem = "problem_type";  // beside the labels

/// Of a folder that holds a classifier's row for each class, with their names where it has them.
std::optional<model::HeadSpec> head_of(const fs::path& folder) {
  const checkpoint::TensorFiles files = open_tensors(folder);
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
  if (!section.config.empty()) {
    request.config = model::read_lora_config(section.config);
    request.config.base_model_name_or_path.clear();
    request.config.revision.clear();
  }
  take_keys(section, request.config);
  return request;
}

std::optional<AdapterRequest> saved_adapter(const fs::path& folder) {
  if (folder.empty()) {
    return std::nullopt;
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
            "there is no adapter in {}: it has no {}", folder.string(), model::kAdapterConfigName),
        "give a folder that PEFT, or a run with keys of lora, has saved");
  }
  return AdapterRequest{
      model::read_lora_config(found / model::kAdapterConfigName), found, head_of(found)};
}

model::Adapters find_adapters(const AdapterRequest& request, const model::ModelConfig& model) {
  const bool is_saved = !request.folder.empty();
  return model::resolve_adapters(
      request.config,
      model,
      is_saved ? model::AdapterOrigin::kSaved : model::AdapterOrigin::kNew,
      is_saved ? ranks_of(open_tensors(request.folder)) : std::map<std::string, int64_t>{});
}

void request_adapters(
    parallel::ModelSpec& spec,
    const AdapterRequest& request,
    const model::ModelSource& base,
    uint64_t seed) {
  auto adapters = std::make_shared<model::Adapters>(find_adapters(request, spec.config));
  adapters->config.base_model_name_or_path = name_of(base);
  std::shared_ptr<const AdapterWeights> weights;
  if (!request.folder.empty()) {
    weights = std::make_shared<const AdapterWeights>(
        open_tensors(request.folder), *adapters, spec.config);
  }
  spec.adapters = adapters;
  const auto fill = std::make_shared<const AdaptedFill>(
      adapters, std::move(weights), spec.config, std::move(spec.fill), seed);
  spec.fill = [fill](
                  const std::string& name,
                  const parallel::ShardedParameter& parameter,
                  int64_t begin,
                  const at::Tensor& values) { (*fill)(name, parameter, begin, values); };
}

std::string adapter_config(const model::Adapters& adapters, const model::ModelConfig& model) {
  model::LoraConfig config = adapters.config;
  if (config.task_type.empty() && !model.bidirectional) {  // PEFT has no word for hidden tokens
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
