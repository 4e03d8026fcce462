// BERT (Devlin et al., 2019) and encoders with the same structure: RoBERTa (Liu et al., 2019) and
// DistilBERT (Sanh et al., 2019). Bidirectional attention and post-norm blocks.
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "model/config_reader.h"
#include "model/encoder_head.h"
#include "model/family.h"
#include "model/layer_list.h"

namespace lockstep::model {
namespace {

constexpr double kDistilBertEps = 1e-12;
constexpr double kMostDropout = 0.999;

/// Adds a norm. Its aliases are the parameter names in older checkpoints.
LayerSpec& bert_norm(LayerList& list, const char* role, const std::string& prefix) {
  LayerSpec& norm = list.layer_norm(role, prefix, list.hidden());
  norm.parameters[0].aliases.push_back(prefix + ".gamma");
  norm.parameters[1].aliases.push_back(prefix + ".beta");
  return norm;
}

/// `base` is the prefix of the encoder in a model with a head.
void describe_embeddings(LayerList& list, const std::string& base) {
  const ModelConfig& config = list.config();
  const std::string place = base + ".embeddings.";
  LayerSpec& tokens = list.tokens(place + "word_embeddings");
  tokens.parameters.front().aliases.clear();
  if (config.ties_head()) {
    for (const char* head : {"cls.predictions.decoder", "lm_head.decoder", "vocab_projector"}) {
      tokens.parameters.front().aliases.push_back(std::string(head) + ".weight");
    }
  }
  LayerSpec& positions = list.table(
      LayerKind::kPositionEmbedding,
      "positions",
      place + "position_embeddings",
      {Dim::kPositions, config.max_positions},
      list.hidden());
  if (config.first_position > 0) {
    positions.parameters.front().init.zero_row = config.first_position - 1;
  }
  if (config.token_types > 0) {
    list.table(
        LayerKind::kPositionEmbedding,
        "token_types",
        place + "token_type_embeddings",
        {Dim::kTokenTypes, config.token_types},
        list.hidden());
  }
  bert_norm(list, "embedding_norm", place + "LayerNorm");
}

/// Layer names of a block.
struct BlockNames {
  const char *query, *key, *value, *attention_out, *attention_norm, *mlp_up, *mlp_down, *mlp_norm;
};

void describe_encoder_block(LayerList& list, const std::string& place, const BlockNames& names) {
  const auto linear = [&](const char* role, const char* module, Extent out, Extent in) {
    list.linear(role, place + module, out, in, LayerList::Bias::kZeros);
  };
  linear("query", names.query, list.queries(), list.hidden());
  // A key bias shifts all scores of a query equally and has no effect. Its gradient would be
  // rounding noise that AdamW turns into full-size updates.
  list.linear("key", place + names.key, list.key_values(), list.hidden(), LayerList::Bias::kZeros)
      .parameters.back()
      .learns = false;
  linear("value", names.value, list.key_values(), list.hidden());
  linear("attention_out", names.attention_out, list.hidden(), list.queries());
  bert_norm(list, "attention_sum_norm", place + names.attention_norm);
  linear("mlp_up", names.mlp_up, list.width(), list.hidden());
  linear("mlp_down", names.mlp_down, list.hidden(), list.width());
  bert_norm(list, "mlp_sum_norm", place + names.mlp_norm);
}

/// Names of the masked language modeling head: a linear layer, a norm and the vocabulary product,
/// whose bias has a separate name in checkpoints if it is tied.
struct MaskedHeadNames {
  const char *dense, *norm, *decoder, *bias;
};

void describe_encoder_head(
    LayerList& list,
    const MaskedHeadNames& masked,
    const std::string& classifier_dense,
    const std::string& classifier) {
  const bool classifies = list.config().head.classifies();
  list.linear(
      "head_dense",
      classifies ? classifier_dense : masked.dense,
      list.hidden(),
      list.hidden(),
      LayerList::Bias::kZeros);
  if (classifies) {
    list.head("", classifier);
    list.head_bias(classifier);
    return;
  }
  bert_norm(list, "head_norm", masked.norm);
  list.head(masked.decoder);
  const bool is_tied = list.config().ties_head();
  LayerSpec& bias = list.head_bias(is_tied ? masked.bias : masked.decoder);
  bias.parameters.front().aliases.push_back(
      std::string(is_tied ? masked.decoder : masked.bias) + ".bias");
}

constexpr BlockNames kBertBlock = {
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm"};
constexpr BlockNames kDistilBertBlock = {
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm"};

void bert_embedding(LayerList& list) {
  describe_embeddings(list, "bert");
}
void roberta_embedding(LayerList& list) {
  describe_embeddings(list, "roberta");
}
void distilbert_embedding(LayerList& list) {
  describe_embeddings(list, "distilbert");
}

void bert_block(LayerList& list, int64_t block) {
  describe_encoder_block(list, fmt::format("bert.encoder.layer.{}.", block), kBertBlock);
}
void roberta_block(LayerList& list, int64_t block) {
  describe_encoder_block(list, fmt::format("roberta.encoder.layer.{}.", block), kBertBlock);
}
void distilbert_block(LayerList& list, int64_t block) {
  describe_encoder_block(
      list, fmt::format("distilbert.transformer.layer.{}.", block), kDistilBertBlock);
}

void bert_head(LayerList& list) {
  describe_encoder_head(
      list,
      {"cls.predictions.transform.dense",
       "cls.predictions.transform.LayerNorm",
       "cls.predictions.decoder",
       "cls.predictions"},
      "bert.pooler.dense",
      "classifier");
}
void roberta_head(LayerList& list) {
  describe_encoder_head(
      list,
      {"lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head"},
      "classifier.dense",
      "classifier.out_proj");
}
void distilbert_head(LayerList& list) {
  describe_encoder_head(
      list,
      {"vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector"},
      "pre_classifier",
      "classifier");
}

void parse_encoder(ConfigReader& reader, ModelConfig& config) {
  config.bidirectional = true;
  config.qkv_bias = config.attention_out_bias = config.mlp_bias = true;
  if (reader.boolean("is_decoder", false)) {
    reader.problem("is_decoder", "true is not supported: the model must be an encoder");
  }
}

void parse_bert(ConfigReader& reader, ModelConfig& config) {
  parse_encoder(reader, config);
  config.token_types = reader.integer("type_vocab_size", 2, 1, 1 << 16);
  config.classifier_dropout = reader.optional_number("classifier_dropout", 0, kMostDropout)
                                  .value_or(config.residual_dropout);
  if (const std::string kind = reader.text("position_embedding_type", "absolute");
      kind != "absolute") {
    reader.problem(
        "position_embedding_type",
        fmt::format("\"{}\" is not supported, only \"absolute\" is", kind));
  }
}

void parse_roberta(ConfigReader& reader, ModelConfig& config) {
  parse_bert(reader, config);
  const int64_t pad = reader.integer("pad_token_id", 1, 0, 1 << 26);
  config.first_position = pad + 1;
  if (config.first_position >= config.max_positions) {
    reader.problem(
        "max_position_embeddings",
        fmt::format(
            "{} leaves no positions: they start after pad_token_id = {}",
            config.max_positions,
            pad));
  }
}

void parse_distilbert(ConfigReader& reader, ModelConfig& config) {
  if (!reader.has("tie_word_embeddings")) {
    config.tie_word_embeddings = reader.boolean("tie_weights_", true);
  }
  parse_encoder(reader, config);
  config.drops_attention_output = false;
  config.classifier_dropout = reader.number("seq_classif_dropout", 0.2, 0, kMostDropout);
  if (config.norm_eps != kDistilBertEps) {
    reader.problem(
        "layer_norm_eps", "is not supported by DistilBERT, whose norms use 1e-12: remove the key");
  }
}

}  // namespace

EncoderHead encoder_head(const ModelConfig& config) {
  if (!config.head.classifies()) {
    // RoBERTa's head always uses GELU, independent of the blocks' activation.
    return {config.family == Family::kRoberta ? Activation::kGelu : config.activation};
  }
  const double dropout = config.classifier_dropout;
  switch (config.family) {
    case Family::kDistilBert:
      return {Activation::kRelu, 0, dropout};
    case Family::kRoberta:
    case Family::kT5:
      return {Activation::kTanh, dropout, dropout};
    default:
      return {Activation::kTanh, 0, dropout};
  }
}

FamilyKeys bert_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kBert;
  keys.name = "bert";
  keys.architecture = "BertForMaskedLM";
  keys.norm_eps = "layer_norm_eps";
  keys.attention_dropout = "attention_probs_dropout_prob";
  keys.embedding_dropout = "hidden_dropout_prob";
  keys.residual_dropout = "hidden_dropout_prob";
  keys.default_vocab_size = 30522;
  keys.default_hidden_size = 768;
  keys.default_layers = 12;
  keys.default_heads = 12;
  keys.default_intermediate_size = 3072;
  keys.default_max_positions = 512;
  keys.default_norm_eps = 1e-12;
  keys.default_dropout = 0.1;
  keys.default_bos = -1;
  keys.default_eos = -1;
  keys.default_pad = 0;
  keys.default_tie = true;
  keys.default_activation = "gelu";
  keys.gates_mlp = false;
  keys.groups_queries = false;
  keys.rotates = false;
  keys.lora_targets = {"query", "value"};
  keys.describe_embedding = bert_embedding;
  keys.describe_block = bert_block;
  keys.describe_head = bert_head;
  keys.parse_options = parse_bert;
  return keys;
}

FamilyKeys roberta_family() {
  FamilyKeys keys = bert_family();
  keys.family = Family::kRoberta;
  keys.name = "roberta";
  keys.architecture = "RobertaForMaskedLM";
  keys.default_vocab_size = 50265;
  keys.default_bos = 0;
  keys.default_eos = 2;
  keys.default_pad = 1;
  keys.describe_embedding = roberta_embedding;
  keys.describe_block = roberta_block;
  keys.describe_head = roberta_head;
  keys.parse_options = parse_roberta;
  return keys;
}

FamilyKeys distilbert_family() {
  FamilyKeys keys = bert_family();
  keys.family = Family::kDistilBert;
  keys.name = "distilbert";
  keys.architecture = "DistilBertForMaskedLM";
  keys.hidden_size = "dim";
  keys.layers = "n_layers";
  keys.heads = "n_heads";
  keys.intermediate_size = "hidden_dim";
  keys.activation = "activation";
  keys.attention_dropout = "attention_dropout";
  keys.embedding_dropout = "dropout";
  keys.residual_dropout = "dropout";
  keys.default_layers = 6;
  keys.lora_targets = {"q_lin", "v_lin"};
  keys.describe_embedding = distilbert_embedding;
  keys.describe_block = distilbert_block;
  keys.describe_head = distilbert_head;
  keys.parse_options = parse_distilbert;
  return keys;
}

}  // namespace lockstep::model
