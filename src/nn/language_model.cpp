// Base class of transformer language models: units, stages and heads.
#include "nn/language_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "nn/families.h"
#include "nn/key_value_cache.h"
#include "nn/table_adapter.h"

namespace lockstep::nn {
namespace {

std::string without_suffix(std::string name) {
  constexpr size_t kSuffix = std::string_view(".weight").size();
  name.resize(name.size() - kSuffix);
  return name;
}

[[noreturn]] void throw_missing(const char* what) {
  throw Error(ErrorKind::kInternal, fmt::format("this stage of the model has no {}", what));
}

const Targets& targets_of(const ForwardInputs& inputs) {
  if (!inputs.targets.defined()) {
    throw Error(ErrorKind::kInternal, "scores and losses require targets");
  }
  return inputs.targets;
}

/// Multiplies x by a factor that is rounded to the type of x, as in transformers.
Tensor scaled(const Tensor& x, double by) {
  return by == 1 ? x : x * at::scalar_tensor(by, x.scalar_type()).item<double>();
}

/// Number of columns that are appended to states and weight to include the bias in the product;
/// rounded up to the SIMD width.
constexpr int64_t kBiasColumns = 16;

/// [..., C] -> [..., C + kBiasColumns]: appends a column of ones and columns of zeros.
Tensor with_one(const Tensor& states) {
  std::vector<int64_t> sizes = states.sizes().vec();
  sizes.back() = kBiasColumns;
  Tensor columns = at::zeros(sizes, states.options());
  columns.select(-1, 0).fill_(1);
  return at::cat({states, columns}, -1);
}

/// [V, C], [V] -> [V, C + kBiasColumns]
Tensor with_column(const Tensor& weight, const Tensor& bias) {
  return at::cat(
      {weight,
       bias.to(weight.device()).unsqueeze(1),
       at::zeros({weight.size(0), kBiasColumns - 1}, weight.options())},
      1);
}

}  // namespace

LanguageModel::LanguageModel(
    model::ModelConfig config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks)
    : around_unit(
          [](int64_t, const Tensors& inputs, const UnitBody& body) { return body(inputs); }),
      config_(std::move(config)),
      part_(part),
      embedding_layers_(config_, model::embedding_layers(config_), -1),
      head_layers_(config_, model::head_layers(config_), -1),
      blocks_(std::move(blocks)) {
  for (model::LayerSpec& layer : model::describe(config_)) {
    for (const model::ParameterSpec& parameter : layer.parameters) {
      specs.emplace(parameter.name, parameter);
    }
    std::string prefix = layer.prefix;
    layers.emplace(std::move(prefix), std::move(layer));
  }
  if (config_.ties_head()) {
    shared_with_head.insert(model::embedding_name(config_));
  }
  if (holds_table()) {
    tokens = std::make_shared<TokenEmbedding>();
    tokens->padding_row = config_.embedding_padding_row.value_or(-1);
    if (config_.ties_head() && part_.head) {  // sparse rows, because the gradient of the head
                                              // covers all rows
      tokens->gradient_form = ops::EmbeddingGradient::kRows;
    }
  }
  if (part_.embedding) {
    embedding_dropout = make_dropout(config_.embedding_dropout, "embedding_dropout", -1);
    embedding_noise = std::make_shared<EmbeddingNoise>();
    embedding_noise->site = dropout_site("embedding_noise", -1);
    if (embedding_layers_.find("positions") != nullptr) {
      positions = std::make_shared<PositionEmbedding>();
    }
  }
  if (part_.head) {
    final_norm = head_layers_.norm("final_norm");
    head_input = std::make_shared<RegionBoundary>();
    head = config_.head.gives_states() ? std::make_shared<StateHead>() : std::make_shared<Head>();
    head->cap = config_.head.classifies() ? 0 : config_.logit_cap;
    if (head_layers_.find("head_bias") != nullptr) {
      head_bias = std::make_shared<HeadBias>();
    }
  }
}

Context LanguageModel::make_context(const ForwardInputs& inputs) const {
  return std::make_shared<const ForwardContext>(config_, inputs);
}

Tensors LanguageModel::embedded(const ForwardContext& context) const {
  const ForwardInputs& inputs = context.inputs();
  Tensor x = embedding_noise->forward(
      scaled(tokens->forward(inputs.ids), config_.embedding_scale), context);  // [B, T, C]
  if (positions != nullptr) {
    x = x + positions->forward(inputs.positions, context.first_position(), context.length());
  }
  return {embedding_dropout->forward(x, context)};
}

Tensor LanguageModel::head_states(const Tensor& x, const ForwardContext& /*context*/) const {
  return head_input->forward(final_norm == nullptr ? x : final_norm->forward(x));
}

Tensors LanguageModel::embed(const Context& context) const {
  if (!part_.embedding) {
    throw_missing("embedding");
  }
  return around_unit(0, {}, [this, context](const Tensors&) { return embedded(*context); });
}

Tensors LanguageModel::forward_blocks(const Tensors& inputs, const Context& context) const {
  Tensors values = inputs;
  int64_t unit = part_.embedding ? 1 : 0;
  for (const auto& block : blocks_) {
    values = around_unit(unit++, values, [block, context](const Tensors& in) {
      return block->forward(in, *context);
    });
  }
  if (context->cache() != nullptr) {
    context->cache()->advance(context->length());
  }
  return values;
}

Tensors LanguageModel::run_head(
    const Tensors& inputs, const Context& context, HeadBody body) const {
  if (head == nullptr) {
    throw_missing("head");
  }
  const auto unit = static_cast<int64_t>(blocks_.size()) + (part_.embedding ? 1 : 0);
  return around_unit(unit, inputs, [this, context, body = std::move(body)](const Tensors& in) {
    TableAdapter::Operands with{
        head_states(in.front(), *context), config_.ties_head() ? tokens->weight : head->weight};
    if (const TableAdapter* adapter = adapter_of_head()) {
      with = adapter->operands(with.states, with.table, adapter->dropout->draw(*context));
    }
    return head_bias == nullptr
               ? body(with.states, with.table)
               : body(with_one(with.states), with_column(with.table, head_bias->bias));
  });
}

Tensors LanguageModel::hidden(const Context& context) const {
  return forward_blocks(embed(context), context);
}

Tensor LanguageModel::loss(const ForwardInputs& inputs) const {
  const Context context = make_context(inputs);
  const auto body = [this, targets = targets_of(inputs)](
                        const Tensor& x, const Tensor& vocabulary) {
    return Tensors{head->loss(x, vocabulary, targets)};
  };
  return run_head(hidden(context), context, body).front();
}

Scores LanguageModel::scores(const ForwardInputs& inputs) const {
  const at::NoGradGuard no_gradient;
  const Context context = make_context(inputs);
  const auto body = [this, targets = targets_of(inputs)](
                        const Tensor& x, const Tensor& vocabulary) {
    const Scores scores = head->scores(x, vocabulary, targets);
    return Tensors{scores.log_likelihoods, scores.likeliest};
  };
  const Tensors result = run_head(hidden(context), context, body);
  return {result[0], result[1]};
}

Tensor LanguageModel::logits(const ForwardInputs& inputs) const {
  const Context context = make_context(inputs);
  const auto body = [this](const Tensor& x, const Tensor& vocabulary) {
    return Tensors{head->logits(x, vocabulary)};
  };
  return run_head(hidden(context), context, body).front();
}

Tensor LanguageModel::last_logits(const ForwardInputs& inputs) const {
  const Context context = make_context(inputs);
  const Tensor x = hidden(context).front();  // [B, T, C]
  const auto body = [this](const Tensor& last, const Tensor& vocabulary) {
    return Tensors{head->logits(last, vocabulary)};
  };
  return run_head({x.narrow(1, x.size(1) - 1, 1)}, context, body).front().squeeze(1);
}

std::string LanguageModel::head_prefix() const {
  if (config_.head.gives_states()) {
    return "states";
  }
  if (config_.ties_head()) {
    const auto tied = model::tied_head(config_);
    return tied ? tied->prefix : "lm_head";  // the head of an encoder is not a separate layer
  }
  return without_suffix(model::head_name(config_));
}

bool LanguageModel::holds_table() const {
  return part_.embedding || (part_.head && config_.ties_head());
}

const TableAdapter* LanguageModel::adapter_of_head() const {
  if (head == nullptr || head->adapter != nullptr) {
    return head == nullptr ? nullptr : head->adapter.get();
  }
  const bool has_tied =
      tokens != nullptr && tokens->adapter != nullptr && tokens->adapter->of_tied_head;
  return has_tied ? tokens->adapter.get() : nullptr;
}

void LanguageModel::visit_embedding(const SlotFunction& visit) {
  visit(embedding_layers_.name("embedding_noise"), embedding_noise);
  if (positions != nullptr) {
    visit(embedding_layers_.name("positions"), positions);
  }
  visit(embedding_layers_.name("embedding_dropout"), embedding_dropout);
}

void LanguageModel::visit_head(const SlotFunction& visit) {
  if (final_norm != nullptr) {
    visit(head_layers_.name("final_norm"), final_norm);
  }
  visit(head_layers_.name("head_input"), head_input);
}

void LanguageModel::visit_slots(const SlotFunction& visit) {
  const SlotName table{"tokens", -1, without_suffix(model::embedding_name(config_))};
  if (part_.embedding) {
    visit(table, tokens);
    visit_embedding(visit);
  }
  for (const auto& block : blocks_) {
    block->visit_slots(visit);
  }
  if (part_.head) {
    visit_head(visit);
    if (holds_table() && !part_.embedding) {
      visit(table, tokens);
    }
    visit({"head", -1, head_prefix()}, head);
    if (head_bias != nullptr) {
      visit(head_layers_.name("head_bias"), head_bias);
    }
  }
}

void LanguageModel::visit_parameters(
    const std::function<void(const std::string& name, Tensor&)>& function) {
  visit_slots(each_layer([&](const SlotName& name, Layer& layer) {
    layer.visit_parameters([&](const Parameter& parameter) {
      if (parameter.value.defined()) {
        function(name.parameter(parameter.name), parameter.value);
      }
    });
  }));
}

std::vector<std::vector<std::string>> LanguageModel::units() {
  const size_t first_block = part_.embedding ? 1 : 0;
  std::vector<std::vector<std::string>> result(first_block + blocks_.size() + (part_.head ? 1 : 0));
  visit_slots(each_layer([&](const SlotName& name, Layer& layer) {
    size_t unit = 0;
    if (name.layer >= 0) {
      unit = first_block + static_cast<size_t>(name.layer - part_.first_layer);
    } else if (name.role == "head" || head_layers_.find(name.role) != nullptr || !part_.embedding) {
      unit = result.size() - 1;
    }
    layer.visit_parameters([&](const Parameter& parameter) {
      if (parameter.value.defined()) {
        result[unit].push_back(name.parameter(parameter.name));
      }
    });
  }));
  return result;
}

}  // namespace lockstep::nn
