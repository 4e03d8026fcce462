// Tokenizes and opens the datasets of a run, and selects packing and masking.
#include "train/batches/datasets.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/core/cache_folder.h"
#include "config/core/unlearning.h"
#include "config/tasks.h"
#include "data/chat.h"
#include "data/encoder.h"
#include "data/inputs.h"
#include "data/prepare.h"
#include "data/row_lengths.h"
#include "data/token_dataset.h"
#include "model/rope.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {
namespace {

constexpr int64_t kDefaultSequenceLength = 1024;

/// Tokenizes all files that the options name and returns the paths of the token files. A mixture
/// has one entry per source, including its held-out splits. The last entry is for the validation
/// and test files.
nlohmann::json prepare(
    const data::DataOptions& options,
    const std::vector<config::MixtureSource>& sources,
    const data::Encoder& encoder) {
  nlohmann::json paths = nlohmann::json::array();
  const auto add = [&](const data::DataOptions& of) {
    const data::PreparedData prepared = data::prepare_data(of, encoder);
    paths.push_back(
        {prepared.train.string(), prepared.validation.string(), prepared.test.string()});
  };
  const bool has_others = !options.validation.empty() || !options.test.empty();
  for (const config::MixtureSource& source : sources) {
    (void)data::find_inputs(
        source.files,
        options.format,
        source_key(source));  // report missing files before tokenizing anything
  }
  for (const config::MixtureSource& source : sources) {
    data::DataOptions part = options;
    part.train = source.files;
    part.train_key = source_key(source);
    part.validation_fraction = options.validation.empty() ? options.validation_fraction : 0;
    part.test_fraction = options.test.empty() ? options.test_fraction : 0;
    part.validation.clear();
    part.test.clear();
    add(part);
  }
  if (sources.empty() || has_others) {
    data::DataOptions rest = options;
    if (!sources.empty()) {
      rest.validation_fraction = rest.test_fraction = 0;
    }
    add(rest);
  }
  return paths;
}

int64_t count_longer(const data::SequenceView& rows) {
  int64_t count = 0;
  for (int64_t i = 0; i < rows.dataset().documents(); ++i) {
    const data::DocumentSpan span = rows.dataset().document(i);
    count += span.end - span.begin > rows.length() ? 1 : 0;
  }
  return count;
}

/// Logs that tokens attend to earlier documents of the same sequence.
void tell_end_to_end(const data::SequenceView& rows) {
  if (rows.packing() == data::Packing::kConcatenated && rows.dataset().documents() > 1) {
    log_info(
        "data.train: {} documents concatenated to {} sequences of {} tokens; tokens attend to "
        "earlier documents in their sequence (data.packing=concatenate)",
        rows.dataset().documents(),
        rows.size(),
        rows.length());
  }
}

/// Logs the share of padding per sequence and the number of documents that are split or truncated.
void tell_packing(const Datasets& sets, std::string_view long_documents) {
  const auto tell_rows = [&](const std::string& name,
                             const std::shared_ptr<const data::SequenceView>& rows) {
    if (rows != nullptr && rows->has_documents()) {
      log_info(
          "{}: {} documents in {} sequences of {} tokens, {:.1f}% padding",
          name,
          rows->dataset().documents(),
          rows->size(),
          rows->length(),
          100 * rows->padding());
      if (const int64_t longer = count_longer(*rows); longer > 0) {
        log_warning(
            "{}: {} documents are longer than a sequence, and {} (data.long_documents)",
            name,
            longer,
            long_documents == "truncate"
                ? "cut off"
                : "continue in another sequence, without access to their beginning");
      }
    }
  };
  const auto tell = [&](const std::string& name,
                        const std::shared_ptr<const data::SequenceView>& rows) {
    tell_rows(name, rows != nullptr && !rows->sources().empty() ? nullptr : rows);
    for (size_t i = 0; rows != nullptr && i < rows->sources().size(); ++i) {
      tell_rows(fmt::format("{}, {}", name, rows->sources()[i].name), rows->sources()[i].rows);
    }
  };
  if (sets.train != nullptr && sets.train->sources().empty()) {
    tell_end_to_end(*sets.train);
  }
  tell("data.train", sets.train);
  tell("data.validation", sets.validation);
  tell("data.test", sets.test);
}

/// Warns about documents that have no loss token. Throws Error (data) if a whole set has none,
/// because training on it would report a loss of 0.
void check_learned(const Datasets& sets, const config::DataSection& section) {
  const auto check = [&](const char* key, const data::SequenceView* rows) {
    const auto found =
        rows != nullptr ? rows->learned_documents() : data::SequenceView::LearnedDocuments();
    if (found.all == 0 || found.without_loss == 0) {
      return;
    }
    const std::string hint = fmt::format(
        "answers beyond data.sequence_length={} are truncated: raise it, or check data.prompt and "
        "data.chat_loss (`lockstep data show` prints which tokens are learned)",
        rows->length());
    if (found.without_loss == found.all) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: none of {} documents has a token to learn", key, found.all),
          hint);
    }
    // A split document continues in another row, which may contain loss tokens.
    if (section.long_documents == "truncate" || rows->packing() == data::Packing::kPerDocument) {
      log_warning(
          "{}: {} of {} documents have no token to learn; {}",
          key,
          found.without_loss,
          found.all,
          hint);
    }
  };
  check("data.train", sets.train.get());
  check("data.validation", sets.validation.get());
  check("data.test", sets.test.get());
}

/// Returns the reason why the model does not support several documents per row, or an empty string
/// if it does.
std::string_view obstacle_to_packing(const model::ModelConfig& model) {
  return model::rope_depends_on_length(model)
             ? "the model's rotary positions depend on the sequence length, which packing changes"
         : model.is_encoder_decoder() ? "encoder-decoder models read one document at a time"
                                      : "";
}

void refuse_packing(std::string_view obstacle) {
  if (!obstacle.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("data.packing=documents: {}", obstacle),
        "use data.packing=none");
  }
}

}  // namespace

std::vector<config::MixtureSource> sources_of(const config::DataSection& section) {
  std::vector<config::MixtureSource> sources;
  for (const config::MixtureSource& source : section.mixture) {
    if (source.weight > 0) {
      sources.push_back(source);
    }
  }
  return sources;
}

std::shared_ptr<const data::SequenceView> mixed_rows(
    const std::vector<config::MixtureSource>& sources,
    const std::vector<std::shared_ptr<const data::SequenceView>>& views) {
  if (sources.empty()) {
    return views.front();
  }
  std::vector<data::MixedRows> parts;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (views[i] != nullptr) {
      parts.push_back({sources[i].name, views[i], sources[i].weight, sources[i].max_epochs});
    }
  }
  return parts.empty() ? nullptr : std::make_shared<data::SequenceView>(std::move(parts));
}

void tell_mixture(const Datasets& sets, const config::DataSection& section) {
  if (sets.train == nullptr || sets.train->sources().empty()) {
    return;
  }
  double sum = 0;
  for (const data::MixedRows& source : sets.train->sources()) {
    sum += source.weight;
  }
  log_info(
      "data.mixture: {} sources, {} sequences per epoch{}",
      sets.train->sources().size(),
      sets.train->size(),
      sets.train->sources().size() == section.mixture.size()
          ? ""
          : "; sources with weight 0 are skipped");
  for (const data::MixedRows& source : sets.train->sources()) {
    const double share = source.weight / sum;
    const auto sequences = static_cast<double>(source.rows->size());
    log_info(
        "  {}: {:.4g}% of the samples, {} sequences, read {:.3g} times per epoch{}",
        source.name,
        100 * share,
        source.rows->size(),
        share * static_cast<double>(sets.train->size()) / sequences,
        source.max_epochs ? fmt::format(", at most {} times in total", *source.max_epochs) : "");
  }
}

std::string source_key(const config::MixtureSource& source) {
  return fmt::format("data.mixture, source '{}'", source.name);
}

data::Packing packing_of(const config::DataSection& section, const model::ModelConfig& model) {
  const bool asked = section.packing == "documents";
  const bool has_prompts = section.prompt != "none" && section.prompt != "auto";
  const bool depends_on_length = model::rope_depends_on_length(model);
  if (asked) {
    refuse_packing(obstacle_to_packing(model));
  }
  if (model.is_encoder_decoder()) {
    return data::Packing::kPairs;
  }
  if (asked || (section.packing == "auto" && has_prompts && !depends_on_length)) {
    return data::Packing::kDocuments;
  }
  const bool end_to_end =
      section.packing == "concatenate" || (section.packing == "auto" && !has_prompts);
  return end_to_end ? data::Packing::kConcatenated : data::Packing::kPerDocument;
}

bool packs_rows(const config::Config& config, const model::ModelConfig& model) {
  std::string_view obstacle = obstacle_to_packing(model);
  if (config.training.router_aux_loss == "sequence") {
    obstacle = "training.router_aux_loss=sequence balances the experts per row";
  } else if (config::unlearns(config.task) && config.unlearning.compatibility == "upstream") {
    obstacle = "with unlearning.compatibility=upstream padding is also learned";
  } else if (config::unlearns(config.task) && config::method_of(config.unlearning).steers) {
    obstacle = "unlearning.method=RMU compares the states of whole rows";
  }
  if (config.data.packing == "documents") {
    refuse_packing(obstacle);
  }
  return obstacle.empty() && config.data.packing != "none";
}

void tell_packed_rows(const Datasets& sets, int64_t draws) {
  if (sets.train != nullptr && sets.train->is_packed()) {
    const int64_t rows = draws * sets.train->rows_at_once();
    data::SequenceView alone = *sets.train;
    alone.set_packed(false);
    log_info(
        "data.train: several rows are packed into one, without attention between them: {:.1f}% of "
        "the tokens are padding, compared with {:.1f}% for single rows (data.packing=none)",
        100 * data::padding_of(*sets.train, rows),
        100 * data::padding_of(alone, rows));
  }
}

data::Packing packing_of_prompts(const model::ModelConfig& model) {
  return model::rope_depends_on_length(model) ? data::Packing::kPerDocument
                                              : data::Packing::kDocuments;
}

int64_t sequence_length_of(const config::Config& config, const model::ModelConfig& model) {
  const int64_t asked = config.data.sequence_length;
  const int64_t most = model::position_limit(model).value_or(model.max_positions);
  const int64_t length = asked > 0 ? asked : std::min(most, kDefaultSequenceLength);
  model::check_positions(model, length);
  return length;
}

void warn_of_positions(const model::ModelConfig& model, int64_t length) {
  if (length > model.max_positions && !model::position_limit(model) &&
      !model.is_encoder_decoder()) {
    log_warning(
        "data.sequence_length={} exceeds the model's {} positions (max_position_embeddings): later "
        "positions are extrapolated",
        length,
        model.max_positions);
  }
}

data::DataOptions data_options(const config::DataSection& section) {
  data::DataOptions options;
  options.train = section.train;
  options.validation = section.validation;
  options.validation_mm = section.validation_mm;
  options.test = section.test;
  options.test_mm = section.test_mm;
  options.format = data::parse_format(section.format);
  options.text_field = section.text_field;
  options.text_delimiter = section.text_delimiter;
  options.prompt =
      section.prompt == "auto" ? data::Prompt::kNone : data::parse_prompt(section.prompt);
  options.messages_field = section.messages_field;
  options.chat_loss = data::parse_chat_loss(section.chat_loss);
  options.instruction_field = section.instruction_field;
  options.input_field = section.input_field;
  options.output_field = section.output_field;
  options.text_documents = data::parse_text_documents(section.text_documents);
  options.invalid_utf8 = data::parse_invalid_utf8(section.invalid_utf8);
  options.validation_fraction = section.validation_fraction;
  options.test_fraction = section.test_fraction;
  options.split_seed = static_cast<uint64_t>(section.split_seed);
  options.cache_dir = config::cache_folder(section.cache_dir);
  return options;
}

std::shared_ptr<const data::ChatTemplate> find_chat_template(
    const config::DataSection& section, const text::Tokenizer& tokenizer) {
  if (!section.chat_template.empty()) {
    return data::ChatTemplate::read(section.chat_template, tokenizer);
  }
  auto own = data::ChatTemplate::of(tokenizer);
  if (own == nullptr) {
    throw Error(
        ErrorKind::kConfig,
        "rows are lists of messages, but the tokenizer has no chat template",
        "set data.chat_template=FILE, or use a tokenizer with a template (chat_template in "
        "tokenizer_config.json, or chat_template.jinja)");
  }
  return own;
}

std::shared_ptr<const data::ChatTemplate> chat_template_of(
    const config::DataSection& section, const text::Tokenizer& tokenizer) {
  return section.prompt == "chat" ? find_chat_template(section, tokenizer) : nullptr;
}

std::optional<int64_t> end_of_turns(
    const config::Config& config, const text::Tokenizer& tokenizer) {
  const bool is_chat = config.data.prompt == "chat" ||
                       (config::writes_labels(config.task) && config.generative.chat);
  return is_chat ? data::end_of_turn_token(tokenizer) : std::nullopt;
}

void check_task(const config::TaskSection& task, const model::ModelConfig& model) {
  if (task.type && (*task.type == "masked_lm") != model.bidirectional) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.type={}, but {} is {}",
            *task.type,
            model::family_name(model.family),
            model.bidirectional ? "an encoder with bidirectional attention"
                                : "a decoder with causal attention"),
        model.bidirectional
            ? "use task.type=masked_lm (or sequence_classification)"
            : "use task.type=language_modeling, or a bert, roberta or distilbert model");
  }
}

void check_documents(const model::ModelConfig& model, const data::DataOptions& options) {
  const bool has_pairs =
      options.prompt == data::Prompt::kAlpaca || options.prompt == data::Prompt::kPairs;
  if (model.bidirectional && options.prompt != data::Prompt::kNone) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is an encoder that learns masked tokens, but data.prompt={} gives prompts and "
            "answers",
            model::family_name(model.family),
            data::name_of(options.prompt)),
        "remove data.prompt, or use another family");
  }
  if (model.is_encoder_decoder() && !has_pairs) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} reads a source and writes a target, but data.prompt={} gives plain text",
            model::family_name(model.family),
            data::name_of(options.prompt)),
        "use JSON lines, CSV or TSV with data.prompt=pairs data.instruction_field=SOURCE "
        "data.output_field=TARGET, or data.prompt=alpaca; for plain text use another family");
  }
}

std::optional<data::Masking> masking_of(
    const config::Config& config,
    const model::ModelConfig& model,
    const text::Tokenizer& tokenizer) {
  if (!model.bidirectional) {
    return std::nullopt;
  }
  if (!tokenizer.mask()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} learns masked tokens, but the tokenizer has no mask token (mask_token)",
            model::family_name(model.family)),
        "use the tokenizer of such a model, or add mask_token to its tokenizer_config.json");
  }
  const config::DataSection& section = config.data;
  data::Masking masking{
      .probability = section.mlm_probability,
      .mask_share = section.mask_replace_prob,
      .random_share = section.random_replace_prob,
      .mask = *tokenizer.mask(),
      .vocabulary = tokenizer.vocabulary_size(),
      .specials = {},
      .continuing =
          section.whole_word_mask ? data::continuing_tokens(tokenizer) : std::vector<bool>{},
      .seed = static_cast<uint64_t>(config.training.data_seed.value_or(config.training.seed))};
  for (int64_t id = 0; id < masking.vocabulary; ++id) {
    masking.specials.push_back(tokenizer.is_special(static_cast<int32_t>(id)));
  }
  return masking;
}

Datasets open_datasets(
    const config::DataSection& section,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::optional<data::Masking>& masking) {
  data::DataOptions options = data_options(section);
  check_documents(model, options);
  options.chat = chat_template_of(section, *tokenizer);
  const std::vector<config::MixtureSource> sources = sources_of(section);
  const auto paths = nlohmann::json::parse(on_first_rank(communicator, [&] {
    data::Encoder encoder = model.bidirectional ? data::make_row_encoder(tokenizer)
                                                : data::make_encoder(tokenizer, section.append_eos);
    encoder.ends_prompts = model.is_encoder_decoder();
    return prepare(options, sources, encoder).dump();
  }));
  const data::Packing packing = packing_of(section, model);
  const auto open_file = [&](const std::string& path) {
    auto rows = std::make_shared<data::SequenceView>(
        data::TokenDataset::open(path),
        sequence_length,
        packing,
        data::parse_long_documents(section.long_documents),
        model.decoder_start_token_id);
    if (model.bidirectional) {
      rows->set_encoder({.masking = masking});
    }
    return rows;
  };
  const auto open = [&](size_t split) -> std::shared_ptr<const data::SequenceView> {
    std::vector<data::MixedRows> parts;
    for (size_t i = 0; i < paths.size(); ++i) {
      const std::string path = paths[i].at(split);
      if (path.empty()) {
        continue;
      }
      const config::MixtureSource source =
          i < sources.size() ? sources[i] : config::MixtureSource{};
      parts.push_back({source.name, open_file(path), source.weight, source.max_epochs});
    }
    if (parts.empty()) {
      return nullptr;
    }
    return !parts[0].name.empty() ? std::make_shared<data::SequenceView>(std::move(parts))
                                  : parts[0].rows;
  };
  const Datasets sets{open(0), open(1), open(2)};
  on_first_rank(communicator, [&] {
    check_learned(sets, section);
    return std::string();
  });
  if (communicator.rank() == 0) {
    if (section.append_eos && !tokenizer->eos() && !model.bidirectional && !options.chat) {
      log_warning(
          "the tokenizer has no end-of-text token: none is appended to documents (set eos_token in "
          "tokenizer_config.json, or data.append_eos=false)");
    }
    tell_packing(sets, section.long_documents);
    tell_mixture(sets, section);
  }
  return sets;
}

}  // namespace lockstep::train
