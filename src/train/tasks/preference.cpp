// Opens the data and creates the objectives of preference tuning.
#include "train/tasks/preference.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/core/cache_folder.h"
#include "data/preferences.h"
#include "data/split.h"
#include "data/token_dataset.h"
#include "objective/objectives.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {
namespace {

using objective::PairLoss;

constexpr size_t kSets = 3;  // train, validation, test
constexpr const char* kSetKeys[kSets] = {"data.train", "data.validation", "data.test"};

const std::map<std::string, PairLoss>& pair_losses() {
  static const std::map<std::string, PairLoss> kLosses = {
      {"sigmoid", PairLoss::kSigmoid},
      {"sigmoid_norm", PairLoss::kSigmoid},
      {"simpo", PairLoss::kSigmoid},
      {"hinge", PairLoss::kHinge},
      {"ipo", PairLoss::kIpo},
      {"exo_pair", PairLoss::kExoPair},
      {"nca_pair", PairLoss::kNcaPair},
      {"robust", PairLoss::kRobust},
      {"bco_pair", PairLoss::kBcoPair},
      {"sppo_hard", PairLoss::kSppoHard},
      {"apo_zero", PairLoss::kApoZero},
      {"apo_down", PairLoss::kApoDown},
      {"discopop", PairLoss::kDiscoPop}};
  return kLosses;
}

data::Judged judged(const config::Config& config) {
  return !trains_rewards(config.task) && config.preference.objective == "kto"
             ? data::Judged::kSingly
             : data::Judged::kInPairs;
}

using EncodedSets = std::array<data::EncodedPreferences, kSets>;

/// Splits the rows of a file into train, validation and test.
void split_answers(std::array<data::Preferences, kSets>& sets, const data::DataOptions& options) {
  data::Splitter splitter(
      options.validation.empty() ? options.validation_fraction : 0,
      options.test.empty() ? options.test_fraction : 0,
      options.split_seed);
  std::vector<data::PreferenceRow> rows = std::exchange(sets[0].rows, {});
  for (data::PreferenceRow& row : rows) {
    sets[static_cast<size_t>(splitter.next())].rows.push_back(std::move(row));
  }
  for (size_t i = 1; i < kSets; ++i) {
    if (sets[i].files.empty()) {
      sets[i].files = sets[0].files;
    }
  }
}

/// Returns the length limits of answers. A reward model reads the last token of an answer, so its
/// answers must not be truncated.
data::AnswerLimits limits_of(const config::Config& config, int64_t length) {
  const config::PreferenceSection& section = config.preference;
  return {
      length,
      section.max_prompt_length,
      trains_rewards(config.task)             ? data::TruncationSide::kNeither
      : section.truncation_mode == "keep_end" ? data::TruncationSide::kEnd
                                              : data::TruncationSide::kStart};
}

void check_model(const config::TaskSection& task, const model::ModelConfig& model) {
  const bool has_reward = trains_rewards(task) && model.head.labels.size() == 1;
  const bool has_encoder = model.is_encoder_decoder() || model.bidirectional;
  if (has_encoder || (model.head.classifies() && !has_reward)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.type={} requires a decoder-only language model, but this is {}",
            *task.type,
            has_encoder ? model::family_name(model.family) : "a classifier"),
        "use the folder of a decoder-only language model");
  }
}

EncodedSets read_and_encode(
    const config::Config& config,
    const text::Tokenizer& tokenizer,
    const data::Encoder& encoder,
    int64_t length) {
  const data::DataOptions options = data_options(config.data);
  const data::Judged how = judged(config);
  std::array<data::Preferences, kSets> sets;
  const std::vector<std::string>* words[kSets] = {
      &options.train, &options.validation, &options.test};
  for (size_t i = 0; i < kSets; ++i) {
    if (!words[i]->empty()) {
      sets[i] = data::read_preferences(*words[i], options.format, kSetKeys[i], how, [&] {
        return find_chat_template(config.data, tokenizer);
      });
    }
  }
  for (size_t i = 0; i < kSets && !trains_rewards(config.task); ++i) {
    const auto row = std::ranges::find_if(
        sets[i].rows, [](const data::PreferenceRow& each) { return each.margin.has_value(); });
    if (row != sets[i].rows.end()) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: the field \"margin\" is used by reward models only", sets[i].place(*row)),
          "remove the column, or set task.type=reward_model");
    }
  }
  split_answers(sets, options);
  EncodedSets encoded;
  for (size_t i = 0; i < kSets; ++i) {
    if (!sets[i].rows.empty()) {
      encoded[i] = data::encode_preferences(sets[i], encoder, limits_of(config, length), how);
    }
  }
  return encoded;
}

PreferenceCounts counts_of(const EncodedSets& sets, int64_t rows_at_once) {
  PreferenceCounts counts;
  int64_t* of_set[kSets] = {&counts.train, &counts.validation, &counts.test};
  for (size_t i = 0; i < kSets; ++i) {
    *of_set[i] = std::ssize(sets[i].answers) / rows_at_once;
    counts.dropped += sets[i].dropped;
    counts.cut += sets[i].cut;
  }
  return counts;
}

/// Warns if the total weights of desirable and undesirable answers differ much (KTO, equation 8).
void warn_of_unequal_answers(
    const config::PreferenceSection& section, const std::vector<data::RowRole>& roles) {
  constexpr double kMost = 1.33;
  const auto good = static_cast<double>(std::ranges::count(roles, data::RowRole::kChosen));
  const double bad = static_cast<double>(roles.size()) - good;
  if (good == 0 || bad == 0) {
    log_warning(
        "all training answers are {}: the model only learns in one direction",
        good == 0 ? "unwanted" : "wanted");
    return;
  }
  const double ratio = section.desirable_weight * good / (section.undesirable_weight * bad);
  if (ratio < 1 || ratio > kMost) {
    log_warning(
        "the total weights of {:.0f} wanted and {:.0f} unwanted answers have the ratio {:.2f}: for "
        "1 to 1.33, set preference.desirable_weight from {:.2f} to {:.2f}",
        good,
        bad,
        ratio,
        section.undesirable_weight * bad / good,
        kMost * section.undesirable_weight * bad / good);
  }
}

}  // namespace

int32_t padding_of_answers(const model::ModelConfig& model, const text::Tokenizer& tokenizer) {
  return model.pad_token_id ? static_cast<int32_t>(*model.pad_token_id)
         : tokenizer.pad()  ? *tokenizer.pad()
                            : tokenizer.eos().value_or(0);
}

objective::ObjectivePointer preference_objective(const config::Config& config) {
  const config::PreferenceSection& section = config.preference;
  if (trains_rewards(config.task)) {
    return objective::reward_of_pairs(section.center_rewards_coefficient.value_or(0));
  }
  constexpr double kBeta = 0.1, kSimpoBeta = 2;
  const std::string loss = loss_name(section);
  const double beta = section.beta.value_or(section.objective == "simpo" ? kSimpoBeta : kBeta);
  if (section.objective == "kto") {
    return objective::answer_preference(
        {.beta = beta,
         .desirable_weight = section.desirable_weight,
         .undesirable_weight = section.undesirable_weight,
         .apo_zero = loss == "apo_zero_unpaired"});
  }
  objective::PreferenceOptions options;
  options.beta = beta;
  options.label_smoothing = section.label_smoothing;
  options.discopop_tau = section.discopop_tau;
  options.reference = needs_reference(config);
  if (section.objective == "orpo") {
    options.loss = PairLoss::kOddsRatio;
    options.per_token = true;
    options.likelihood = 1;
    return objective::direct_preference(options);
  }
  options.loss = pair_losses().at(loss);
  options.per_token = loss == "ipo" || loss == "sigmoid_norm" || loss == "simpo";
  options.margin = loss == "simpo" ? section.simpo_gamma : 0;
  options.likelihood = section.objective == "cpo"   ? section.cpo_alpha
                       : section.objective == "dpo" ? section.rpo_alpha.value_or(0)
                                                    : 0;
  return objective::direct_preference(options);
}

std::string loss_name(const config::PreferenceSection& section) {
  const bool has_choice =
      section.objective == "dpo" || section.objective == "cpo" || section.objective == "kto";
  return !has_choice ? section.objective
                     : section.loss_type.value_or(section.objective == "kto" ? "kto" : "sigmoid");
}

bool needs_reference(const config::Config& config) {
  const config::PreferenceSection& section = config.preference;
  const bool compares =
      section.objective == "dpo" || section.objective == "ipo" || section.objective == "kto";
  return compares && !section.reference_free && !trains_rewards(config.task);
}

std::string PreferenceCounts::text(const config::Config& config) const {
  const char* things = judged(config) == data::Judged::kInPairs ? "pairs" : "answers";
  const std::string what = trains_rewards(config.task) ? "reward model"
                                                       : fmt::format(
                                                             "preference.objective={}, loss {}",
                                                             config.preference.objective,
                                                             loss_name(config.preference));
  std::string text = fmt::format(
      "{}: {} training {}, {} for validation, {} for test", what, train, things, validation, test);
  if (dropped > 0) {
    text += fmt::format(
        "; {} {} dropped, {} data.sequence_length",
        dropped,
        dropped == 1 ? "is" : "are",
        trains_rewards(config.task) ? "longer than" : "whose prompt fills");
  }
  if (cut > 0) {
    text += fmt::format("; {} answers are truncated to fit", cut);
  }
  return text;
}

PreferenceCounts count_preferences(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length) {
  check_model(config.task, model);
  return counts_of(
      read_and_encode(config, *tokenizer, data::make_encoder(tokenizer), sequence_length),
      rows_of_sequence(config));
}

data::EncodedPreferences training_answers(
    const config::Config& config,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length) {
  EncodedSets sets =
      read_and_encode(config, *tokenizer, data::make_encoder(tokenizer), sequence_length);
  const data::AnswerLimits limits = limits_of(config, sequence_length);
  for (data::EncodedAnswer& answer : sets[0].answers) {
    answer = data::cut_answer(std::move(answer), limits);
  }
  return std::move(sets[0]);
}

AnswerSets open_preference_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    int64_t block,
    comm::Communicator& communicator) {
  check_model(config.task, model);
  const config::PreferenceSection& section = config.preference;
  const bool mismatches = judged(config) == data::Judged::kSingly && loss_name(section) == "kto";
  const int64_t at_once = rows_of_sequence(config);
  const std::string answer = on_first_rank(communicator, [&] {
    const data::Encoder encoder = data::make_encoder(tokenizer);
    const EncodedSets sets = read_and_encode(config, *tokenizer, encoder, sequence_length);
    log_info("{}", counts_of(sets, at_once).text(config));
    if (judged(config) == data::Judged::kSingly) {
      warn_of_unequal_answers(section, sets[0].roles);
    }
    const int32_t pad = padding_of_answers(model, *tokenizer);
    const int64_t vocabulary =
        std::max({encoder.vocabulary_size, model.vocab_size, int64_t{pad} + 1});
    const auto write = [&](const std::vector<data::EncodedAnswer>& answers) {
      const auto folder = config::cache_folder(config.data.cache_dir);
      const data::AnswerLimits limits = limits_of(config, sequence_length);
      return data::write_answers(answers, limits, folder, encoder, vocabulary, pad).string();
    };
    auto json = nlohmann::json::array();
    for (const data::EncodedPreferences& set : sets) {
      std::vector<int> roles;
      for (const data::RowRole role : set.roles) {
        roles.push_back(static_cast<int>(role));
      }
      const bool is_there = !set.answers.empty();
      json.push_back(
          {{"rows", is_there ? write(set.answers) : ""},
           {"mismatched",
            is_there && mismatches ? write(data::mismatched(set.answers, block)) : ""},
           {"roles", roles},
           {"margins", set.margins}});
    }
    return json.dump();
  });
  const auto json = nlohmann::json::parse(answer);
  const bool packs = packs_rows(config, model);
  const auto open = [&](size_t set, const char* kind) -> std::shared_ptr<const data::SequenceView> {
    const std::string path = json.at(set).at(kind);
    if (path.empty()) {
      return nullptr;
    }
    data::AnswerRows answers;
    answers.at_once = at_once;
    answers.are_rewarded = trains_rewards(config.task);
    answers.learns_prompts = !answers.are_rewarded && section.objective == "orpo";
    for (const int role : json.at(set).at("roles")) {
      answers.roles.push_back(static_cast<data::RowRole>(role));
    }
    answers.margins = json.at(set).at("margins").get<std::vector<double>>();
    auto rows = std::make_shared<data::SequenceView>(
        data::TokenDataset::open(path), sequence_length, std::move(answers));
    rows->set_packed(packs);
    return rows;
  };
  return {
      {open(0, "rows"), open(1, "rows"), open(2, "rows")},
      {open(0, "mismatched"), open(1, "mismatched"), open(2, "mismatched")}};
}

}  // namespace lockstep::train
