// Resolves a LoRA configuration against a model: layers, parameters and PEFT file names.
#include "model/adapters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/nearest.h"
#include "model/adapter_names.h"
#include "model/encoder_head.h"
#include "model/family.h"
#include "model/lora_targets.h"

namespace lockstep::model {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::kConfig, what, remedy);
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

bool is_linear(const LayerSpec& layer) {
  return layer.kind == LayerKind::kLinear;
}
/// Returns true for tables with one row per token: the embedding and the language model's head.
bool is_table(const LayerSpec& layer) {
  return layer.kind == LayerKind::kTokenEmbedding ||
         (layer.kind == LayerKind::kHead && layer.weight().dims.front() == Dim::kVocabulary);
}
bool is_any(const LayerSpec& /*layer*/) {
  return true;
}

/// Returns the last name component of each matching layer, without duplicates, in layer order.
std::vector<std::string> last_parts(
    const std::vector<LayerSpec>& layers, bool (*takes)(const LayerSpec&)) {
  std::vector<std::string> names;
  for (const LayerSpec& layer : layers) {
    std::string name = last_part(layer.prefix);
    if (takes(layer) && !layer.is_in_stack() &&
        std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

class Resolver {
 public:
  Resolver(
      LoraConfig config,
      const ModelConfig& model,
      AdapterOrigin origin,
      const std::map<std::string, int64_t>& ranks)
      : model_(model),
        is_new_(origin == AdapterOrigin::kNew),
        ranks_of_file_(ranks),
        layers_(describe(model)),
        stacks_(embeddings_of_stacks(model)) {
    result_.config = std::move(config);
    if (const auto head = tied_head(model)) {
      tied_head_ = head->prefix;
      layers_.push_back(*head);
    }
  }

  Adapters run() {
    check_initial();
    settle_targets();
    add_classifier();
    add_adapters();
    add_saved_modules();
    add_biases();
    check_tied();
    add_rows();
    name_files();
    return std::move(result_);
  }

 private:
  LoraConfig& config() { return result_.config; }
  const LoraConfig& config() const { return result_.config; }
  const LayerSpec& embedding() const {
    return *std::find_if(layers_.begin(), layers_.end(), [](const LayerSpec& layer) {
      return layer.kind == LayerKind::kTokenEmbedding;
    });
  }

  /// Checks the initialization. Methods such as pissa modify the base weights irreversibly, so a
  /// saved adapter then belongs to the modified base.
  void check_initial() const {
    const std::string& init = config().init_lora_weights;
    constexpr std::array known = {"true", "false", "gaussian", "orthogonal", "pissa", "olora"};
    if (std::find(known.begin(), known.end(), init) == known.end()) {
      refuse(
          fmt::format("lora.init_lora_weights: {} is not supported", init),
          is_new_ ? fmt::format("use one of {}", fmt::join(known, ", "))
                  : "the adapter belongs to a modified base: save it with PEFT's "
                    "path_initial_model_for_weight_conversion, for use with the original base");
    }
  }

  /// Replaces null and all-linear with module names.
  void settle_targets() {
    if (config().targets_all_linear) {
      config().target_modules.names = last_parts(layers_, is_linear);
      config().targets_all_linear = false;
    } else if (config().target_modules.empty()) {
      for (const char* name : keys_of(model_.family).lora_targets) {
        config().target_modules.names.emplace_back(name);
      }
    }
    if (!config().layers_to_transform.empty() && !config().target_modules.pattern.empty()) {
      refuse(
          "lora.layers_to_transform is set, and lora.target_modules is a regular expression",
          "select the layers in the expression, or use a list for target_modules");
    }
    if (!config().layers_pattern.empty() && config().layers_to_transform.empty()) {
      refuse(
          "lora.layers_pattern is set without lora.layers_to_transform",
          "set the layer numbers, or remove it");
    }
    for (const int64_t layer : config().layers_to_transform) {
      if (layer >= model_.layers) {
        refuse(
            fmt::format(
                "lora.layers_to_transform: layer {} does not exist in a model of {} layers",
                layer,
                model_.layers),
            "layers count from 0");
      }
    }
  }

  /// Adds a new classifier's head to the trained modules because it is untrained (PEFT's SEQ_CLS).
  void add_classifier() {
    if (!model_.head.classifies()) {
      return;
    }
    config().task_type = "SEQ_CLS";
    std::vector<const char*> names{"classifier", "score"};
    if (model_.family == Family::kBert) {
      names.push_back("pooler");  // the pooler is also new if the checkpoint has none
    }
    if (model_.family == Family::kT5) {
      names = {kT5ClassifierHead.data()};
    }
    for (const char* name : names) {
      std::vector<std::string>& saved = config().modules_to_save;
      if (std::find(saved.begin(), saved.end(), name) == saved.end()) {
        saved.emplace_back(name);
        classifier_.insert(name);
      }
    }
  }

  void add_adapters() {
    const LoraTargets targets(config());
    const PatternTable ranks("lora.rank_pattern", config().rank_pattern);
    const PatternTable alphas("lora.alpha_pattern", config().alpha_pattern);
    for (const LayerSpec& layer : layers_) {
      if (!targets.contains(layer.prefix) || is_bias_of_head(layer)) {
        continue;
      }
      check_kind(layer);
      const bool is_tied = is_table(layer) && model_.ties_head() && config().ensure_weight_tying;
      // Tied layers share the embedding's adapter.
      const LayerSpec& with_adapter = is_tied ? embedding() : layer;
      if (result_.of_layers.count(with_adapter.prefix) == 0) {
        add_adapter(
            with_adapter, ranks.find(with_adapter.prefix), alphas.find(with_adapter.prefix));
        result_.of_layers.at(with_adapter.prefix).of_tied_head = is_tied;
      }
    }
    for (const LayerSpec& table : stacks_) {
      if (targets.contains(table.prefix)) {
        check_stack(table);
        add_adapter(table, ranks.find(table.prefix), alphas.find(table.prefix));
      }
    }
    check_targets();
    check_patterns("lora.rank_pattern", config().rank_pattern, used_ranks_);
    check_patterns("lora.alpha_pattern", config().alpha_pattern, used_alphas_);
  }

  /// Returns true if the layer is the head's bias. Checkpoints store both as one module.
  bool is_bias_of_head(const LayerSpec& layer) const {
    return layer.kind == LayerKind::kHeadBias &&
           std::any_of(layers_.begin(), layers_.end(), [&](const LayerSpec& other) {
             return other.kind == LayerKind::kHead && other.prefix == layer.prefix;
           });
  }

  void check_stack(const LayerSpec& table) const {
    if (config().ensure_weight_tying || !config().trainable_tokens.empty()) {
      refuse(
          fmt::format(
              "lora.target_modules: {} would have a separate adapter, and {} is listed",
              table.prefix,
              config().ensure_weight_tying ? "lora.ensure_weight_tying"
                                           : "lora.trainable_token_indices"),
          "remove one of them");
    }
  }

  void check_kind(const LayerSpec& layer) const {
    const std::string what = "lora.target_modules: " + layer.prefix;
    if (layer.is_in_stack()) {
      refuse(
          what +
              " is stored in one tensor with the other experts of its layer, and is not a module "
              "that can have an adapter",
          fmt::format("use some of {}", fmt::join(last_parts(layers_, is_linear), ", ")));
    }
    if (!is_linear(layer) && !is_table(layer) && !layer.is_looked_up()) {
      refuse(
          what + " is not a linear layer, the embedding or the head; only these can have adapters",
          fmt::format(
              "use some of {}, or train it fully with lora.modules_to_save",
              fmt::join(last_parts(layers_, is_linear), ", ")));
    }
    if (layer.kind == LayerKind::kTokenEmbedding && model_.is_encoder_decoder()) {
      refuse(
          what +
              " is a name of the embedding that neither the encoder nor the decoder reads: an "
              "adapter of PEFT has no effect there",
          "use embed_tokens: the encoder's and the decoder's embedding then have one adapter each");
    }
    if (layer.kind == LayerKind::kHead && model_.bidirectional &&
        config().bias != LoraConfig::Bias::kNone) {
      refuse(
          what +
              " is an encoder's head, whose bias has two names, and lora.bias would train it too",
          "remove lora.bias, or the head");
    }
    if (is_table(layer) && model_.ties_head() && config().ensure_weight_tying &&
        config().use_dora) {
      refuse(
          what + " is tied, and DoRA would need magnitudes of its rows and of its columns",
          "remove lora.use_dora, or remove lora.ensure_weight_tying so that each has its own "
          "adapter");
    }
  }

  void add_adapter(const LayerSpec& layer, const PatternMatch& rank, const PatternMatch& alpha) {
    note_use(layer, "lora.rank_pattern", rank, used_ranks_);
    note_use(layer, "lora.alpha_pattern", alpha, used_alphas_);
    const ParameterSpec& weight = layer.weight();
    const bool in_first = layer.has_inputs_first();
    const int64_t in = weight.shape[in_first ? 0 : 1], out = weight.shape[in_first ? 1 : 0];
    Adapter adapter;
    adapter.rank = rank.value ? static_cast<int64_t>(*rank.value) : config().r;
    if (const auto found = ranks_of_file_.find(layer.prefix); found != ranks_of_file_.end()) {
      adapter.rank = found->second;
    }
    // A layer with a single output, such as the gate of a shared expert, uses the rank of the other
    // layers, as in PEFT.
    if (adapter.rank > std::min(in, out) && std::min(in, out) > 1 && is_new_) {
      refuse(
          fmt::format(
              "{}: rank {} exceeds the size of {}, which is {} x {}",
              rank.value ? "lora.rank_pattern" : "lora.r",
              adapter.rank,
              layer.prefix,
              out,
              in),
          fmt::format("use at most {}", std::min(in, out)));
    }
    check_start(config(), layer, adapter.rank, is_new_);
    const auto r = static_cast<double>(adapter.rank);
    adapter.scale =
        alpha.value.value_or(config().lora_alpha) / (config().use_rslora ? std::sqrt(r) : r);
    adapter.dropout = config().lora_dropout;
    adapter.parameters = factors(layer, adapter.rank, in, out);
    adapter.decomposes = config().use_dora;
    if (adapter.decomposes) {
      adapter.parameters.push_back(
          {.name = layer.prefix + std::string(kMagnitudesEnd),
           .shape = {out},
           .init = {Initialization::Kind::kOnes, 0, -1},  // overwritten later with values computed
                                                          // from the other parameters
           .decays = true,
           .unit = layer.weight().unit,
           .dims = {weight.dims[in_first ? 1 : 0]}});
    }
    result_.of_layers.emplace(layer.prefix, std::move(adapter));
  }

  /// Returns A and B with PEFT's initialization. B is zero (for an embedding, A), so the adapter
  /// initially adds nothing.
  std::vector<ParameterSpec> factors(
      const LayerSpec& layer, int64_t rank, int64_t in, int64_t out) const {
    using Kind = Initialization::Kind;
    const std::string& init = result_.config.init_lora_weights;
    const auto uniform = [](int64_t inputs) {
      return Initialization{Kind::kUniform, 1 / std::sqrt(static_cast<double>(inputs)), -1};
    };
    const bool is_gaussian = init == "gaussian";
    const auto parameter = [&](const char* name, std::vector<int64_t> shape, Initialization start) {
      return ParameterSpec{
          .name = layer.prefix + name,
          .shape = std::move(shape),
          .init = start,
          .decays = true,
          .unit = layer.weight().unit};
    };
    const Initialization zeros{Kind::kZeros, 0, -1}, normal{Kind::kNormal, 1, -1};
    const bool of_embedding = layer.is_looked_up();
    ParameterSpec a =
        of_embedding
            ? parameter(".lora_embedding_A", {rank, in}, init == "false" ? normal : zeros)
            : parameter(
                  ".lora_A.weight",
                  {rank, in},
                  is_gaussian ? Initialization{Kind::kNormal, 1 / static_cast<double>(rank), -1}
                              : uniform(in));
    ParameterSpec b =
        of_embedding
            ? parameter(".lora_embedding_B", {out, rank}, normal)
            : parameter(".lora_B.weight", {out, rank}, init == "false" ? uniform(rank) : zeros);
    const std::vector<Dim>& dims = layer.weight().dims;
    a.dims = {Dim::kRank, dims[layer.has_inputs_first() ? 0 : 1]};
    b.dims = {dims[layer.has_inputs_first() ? 1 : 0], Dim::kRank};
    return {std::move(a), std::move(b)};
  }

  void note_use(
      const LayerSpec& layer,
      const char* key,
      const PatternMatch& match,
      std::set<size_t>& used) const {
    used.insert(match.matched.begin(), match.matched.end());
    if (match.matched.size() > 1 && is_new_) {
      refuse(
          fmt::format("{}: {} of its patterns match {}", key, match.matched.size(), layer.prefix),
          "make only one of them match: adapters are saved without the order of patterns");
    }
  }

  /// Checks that every requested name matches a module.
  void check_targets() const {
    const std::vector<std::string>& names = result_.config.target_modules.names;
    const bool has_none = result_.of_layers.empty();
    for (const std::string& name : names) {
      const auto is_it = [&](const LayerSpec& layer) { return is_listed(layer.prefix, {name}); };
      const bool is_there = std::any_of(layers_.begin(), layers_.end(), is_it) ||
                            std::any_of(stacks_.begin(), stacks_.end(), is_it);
      if (!is_there && (is_new_ || has_none)) {
        const std::vector<std::string> candidates = last_parts(layers_, is_linear);
        refuse(
            fmt::format(
                "lora.target_modules: unknown module {}.{}", name, did_you_mean(name, candidates)),
            fmt::format("the linears are {}; all-linear selects all", fmt::join(candidates, ", ")));
      }
    }
    const auto linear = std::find_if(layers_.begin(), layers_.end(), is_linear);
    if (has_none && !result_.config.target_modules.pattern.empty()) {
      refuse(
          fmt::format(
              "lora.target_modules: '{}' does not match the full name of any module that can have "
              "an adapter",
              result_.config.target_modules.pattern),
          fmt::format(
              "the name of a linear is {}; others end in {}",
              linear->prefix,
              fmt::join(last_parts(layers_, is_linear), ", ")));
    }
    if (has_none) {
      refuse(
          "lora: no module has an adapter: all are excluded",
          "remove lora.exclude_modules, lora.modules_to_save or lora.layers_to_transform, or use "
          "other targets");
    }
  }

  void check_patterns(
      const char* key, const NumberPatterns& patterns, const std::set<size_t>& used) const {
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (used.count(i) == 0 && is_new_) {
        refuse(
            fmt::format("{}: '{}' matches no module with an adapter", key, patterns[i].first),
            "it must match the end of a name, starting at a dot");
      }
    }
  }

  /// Adds the modules whose names end with a requested name, and all modules inside them, as PEFT
  /// does.
  void add_saved_modules() {
    for (const std::string& module : config().modules_to_save) {
      bool is_there = false;
      for (const LayerSpec& layer : layers_) {
        for (size_t end = layer.prefix.size(); end != std::string::npos;
             end = end == 0 ? std::string::npos : layer.prefix.rfind('.', end - 1)) {
          if (layer.prefix.substr(0, end).ends_with(module)) {
            is_there = true;
            train(layer);
            break;
          }
        }
      }
      const bool is_tied_head = module == "lm_head" && model_.ties_head();
      if (!is_there && !is_tied_head && is_new_ && classifier_.count(module) == 0) {
        refuse(
            fmt::format(
                "lora.modules_to_save: unknown module {}.{}",
                module,
                did_you_mean(module, last_parts(layers_, is_any))),
            fmt::format("the modules are {}", fmt::join(last_parts(layers_, is_any), ", ")));
      }
    }
  }

  void train(const LayerSpec& layer) {
    if (layer.is_in_stack()) {
      refuse(
          fmt::format(
              "lora.modules_to_save: experts such as {} are stored in one tensor, which adapter "
              "files do not support",
              layer.prefix),
          "use other modules");
    }
    for (const ParameterSpec& parameter : layer.parameters) {
      result_.trained.insert(parameter.name);
    }
  }

  void add_biases() {
    const LoraConfig::Bias bias = config().bias;
    for (const LayerSpec& layer : layers_) {
      const bool has_adapter = result_.of_layers.count(layer.prefix) > 0;
      if (layer.is_in_stack() && bias == LoraConfig::Bias::kAll) {
        refuse(
            "lora.bias=all: the biases of experts are stored in one tensor, which adapter files do "
            "not support",
            "use lora_only or none");
      }
      if (bias == LoraConfig::Bias::kAll || (bias == LoraConfig::Bias::kLoraOnly && has_adapter)) {
        for (const ParameterSpec& parameter : layer.parameters) {
          if (parameter.name.ends_with(".bias")) {
            result_.trained.insert(parameter.name);
          }
        }
      }
    }
  }

  /// Checks a request to train a tied embedding. PEFT trains a copy, which the tied head does not
  /// use unless configured to.
  void check_tied() {
    const std::string embedding = embedding_name(model_);
    const std::vector<std::string>& saved = config().modules_to_save;
    const bool names_head = std::find(saved.begin(), saved.end(), "lm_head") != saved.end();
    if (model_.ties_head() && (names_head || result_.trained.count(embedding) > 0)) {
      if (!config().ensure_weight_tying) {
        refuse(
            "lora.modules_to_save: the embedding and the head of this model are tied",
            "set lora.ensure_weight_tying=true to train them together");
      }
      result_.trained.insert(embedding);
    }
  }

  /// Adds the trained rows of selected tokens. With a tied embedding they are also rows of the
  /// head, as in PEFT.
  void add_rows() {
    constexpr const char* kKey = "lora.trainable_token_indices";
    std::map<std::string, std::vector<int64_t>> found;
    for (const auto& [name, tokens] : config().trainable_tokens) {
      const std::string& table = name.empty() ? embedding().prefix : name;
      const auto layer = std::find_if(layers_.begin(), layers_.end(), [&](const LayerSpec& each) {
        return is_table(each) && is_listed(each.prefix, {table});
      });
      if (layer == layers_.end()) {
        const std::vector<std::string> tables = last_parts(layers_, is_table);
        refuse(
            fmt::format("{}: {} has no token rows.{}", kKey, name, did_you_mean(name, tables)),
            fmt::format("the tables are {}", fmt::join(tables, ", ")));
      }
      check_tokens(kKey, *layer, tokens);
      found[layer->prefix] = tokens;
    }
    if (found.count(tied_head_) > 0) {
      if (found[embedding().prefix] != found[tied_head_]) {
        refuse(
            fmt::format("{}: the embedding and the head of this model are tied", kKey),
            "use a single list of tokens, which applies to both");
      }
      found.erase(tied_head_);
    }
    for (const LayerSpec& layer : layers_) {
      if (const auto rows = found.find(layer.prefix); rows != found.end()) {
        add_rows_of(layer, rows->second);
      }
    }
  }

  void check_tokens(const char* key, const LayerSpec& layer, std::vector<int64_t> tokens) const {
    std::sort(tokens.begin(), tokens.end());
    const auto twice = std::adjacent_find(tokens.begin(), tokens.end());
    const int64_t rows = layer.weight().shape.front();
    if (tokens.empty() || twice != tokens.end() || tokens.front() < 0 || tokens.back() >= rows) {
      refuse(
          tokens.empty() ? fmt::format("{}: no tokens for {}", key, layer.prefix)
          : twice != tokens.end()
              ? fmt::format("{}: token {} is listed twice", key, *twice)
              : fmt::format("{}: {} is not a token of {}", key, tokens.back(), layer.prefix),
          fmt::format("use tokens from 0 to {}, each once", rows - 1));
    }
    const auto& others = result_.of_layers;
    if (others.count(layer.prefix) > 0 || others.count(tied_head_) > 0 ||
        result_.trained.count(layer.weight().name) > 0) {
      refuse(
          fmt::format(
              "{}: {} is also listed in lora.target_modules or lora.modules_to_save",
              key,
              layer.prefix),
          "train either some of its rows, the whole module, or an adapter");
    }
  }

  void add_rows_of(const LayerSpec& layer, const std::vector<int64_t>& tokens) {
    const ParameterSpec& weight = layer.weight();
    Adapter adapter;
    adapter.tokens = tokens;
    adapter.of_tied_head = model_.ties_head();
    adapter.parameters.push_back(
        {.name = layer.prefix + std::string(kRowsEnd),
         .shape = {std::ssize(tokens), weight.shape[1]},
         .init = weight.init,  // overwritten later with the table's rows
         .decays = true,
         .unit = weight.unit,
         .dims = {Dim::kNewRows, weight.dims[1]}});
    result_.of_layers.emplace(layer.prefix, std::move(adapter));
  }

  void name_files() {
    for (const std::string& name : result_.trained) {
      const std::string layer = name.substr(0, name.rfind('.'));
      const bool is_of_target = result_.of_layers.count(layer) > 0;
      result_.file_names[name] = {
          peft_name(is_of_target ? layer + ".base_layer" + name.substr(layer.size()) : name)};
      if (model_.ties_head() && name == embedding_name(model_)) {
        result_.file_names[name].push_back(peft_name("lm_head.weight"));
      }
    }
    for (const auto& [name, parameter] : adapter_parameters(result_)) {
      result_.file_names[name] = {peft_name(name)};
    }
    std::vector<LayerSpec> layers = layers_;
    layers.insert(layers.end(), stacks_.begin(), stacks_.end());
    for (const LayerSpec& layer : layers) {
      const auto found = result_.of_layers.find(layer.prefix);
      if (!is_table(layer) || found == result_.of_layers.end() || found->second.rank == 0) {
        continue;
      }
      const std::string base = peft_name(layer.prefix + ".base_layer.weight");
      if (!result_.base_names.emplace(layer.weight().name, base).second) {
        result_.copies.insert(base);
      }
      if (found->second.of_tied_head) {
        for (const char* name : {".lora_A.weight", ".lora_B.weight", ".base_layer.weight"}) {
          result_.copies.insert(peft_name(tied_head_ + name));
        }
      }
    }
  }

  const ModelConfig& model_;
  bool is_new_;
  const std::map<std::string, int64_t>& ranks_of_file_;
  std::vector<LayerSpec> layers_;
  const std::vector<LayerSpec> stacks_;  // an encoder-decoder's shared embedding under both names
  std::string tied_head_;  // prefix of the tied head, the last layer; empty: no tied head
  std::set<std::string> classifier_;  // implicitly added modules to save
  std::set<size_t> used_ranks_, used_alphas_;
  Adapters result_;
};

}  // namespace

Adapters resolve_adapters(
    LoraConfig config,
    const ModelConfig& model,
    AdapterOrigin origin,
    const std::map<std::string, int64_t>& ranks) {
  return Resolver(std::move(config), model, origin, ranks).run();
}

}  // namespace lockstep::model
