// Opens the data and creates the targets and objectives of unlearning.
#include "train/tasks/unlearning.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/core/cache_folder.h"
#include "config/core/unlearning.h"
#include "data/token_dataset.h"
#include "model/freeze.h"
#include "objective/objectives.h"
#include "train/batches/datasets.h"
#include "train/machine/rank_context.h"
#include "train/tasks/preference.h"

namespace lockstep::train {
namespace {

constexpr int64_t kRefusalsOfARow = 10;  // refusals per row; each epoch uses the next one
constexpr int64_t kUpstreamColumn =
    100;  // UNDIAL indexes column -100, that is 100 from the end of the vocabulary

double beta_of(const config::UnlearningSection& section) {
  return section.beta.value_or(config::method_of(section).beta);
}

bool retain_leads(const config::UnlearningSection& section) {
  return section.anchor == "retain" || !config::method_of(section).forgets;
}

uint64_t data_seed(const config::Config& config) {
  return static_cast<uint64_t>(config.training.data_seed.value_or(config.training.seed));
}

/// Rows of one file: forget set, alternative answers and retain set.
struct EncodedRows {
  std::vector<data::EncodedAnswer> answers;
  data::PartnerRows parts;
  int64_t without_answer = 0, cut = 0;  // see UnlearningCounts
};

class RowEncoder {
 public:
  RowEncoder(
      const config::Config& config,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      int64_t length)
      : config_(config),
        tokenizer_(tokenizer),
        encoder_(data::make_encoder(tokenizer)),
        form_(question_template(config.unlearning, *tokenizer)),
        length_(length) {}

  const data::Encoder& encoder() const { return encoder_; }

  EncodedRows all() {
    const config::UnlearningSection& section = config_.unlearning;
    const bool is_dpo = section.method == "DPO";
    EncodedRows rows;
    rows.parts.seed = data_seed(config_);
    rows.parts.retain_leads = retain_leads(section);
    if (config::method_of(section).forgets) {
      rows.parts.forget = add_all(section.forget, "unlearning.forget", rows);
      if (section.method == "CEU") {
        skip_first(rows);
      }
      if (is_dpo) {
        rows.parts.alternates =
            add_alternates(read(section.forget, "unlearning.forget", true), rows);
      }
    }
    if (keeps_rows(section)) {
      rows.parts.retain = add_all(section.retain, "unlearning.retain", rows);
    }
    return rows;
  }

 private:
  data::Questions read(
      const std::vector<std::string>& words, const char* key, bool has_alternates) const {
    const config::UnlearningSection& section = config_.unlearning;
    const data::QuestionKeys keys{
        section.question_key,
        section.answer_key,
        has_alternates ? section.alternate_key.value_or("") : ""};
    return data::read_questions(words, data_options(config_.data).format, key, keys);
  }
  void add(std::string_view question, std::string_view answer, EncodedRows& rows) const {
    const auto encoded = [&](int64_t length) {
      return data::encode_question(question, answer, form_, encoder_, length);
    };
    const auto size = [](const data::EncodedAnswer& row) {
      return std::ssize(row.prompt) + std::ssize(row.answer);
    };
    data::EncodedAnswer row = encoded(length_);
    const bool is_full = !row.answer.empty() && size(row) == length_;
    rows.cut += is_full && size(encoded(length_ + 1)) > length_ ? 1 : 0;
    add(std::move(row), rows);
  }
  static void add(data::EncodedAnswer answer, EncodedRows& rows) {
    rows.without_answer += answer.answer.empty() ? 1 : 0;
    rows.answers.push_back(std::move(answer));
  }
  /// Encodes a text and its prefix, truncated to the maximum length.
  data::EncodedAnswer completion(const data::Question& row) const {
    const std::string_view between = config_.unlearning.insert_space ? " " : "";
    auto [prefix, text] =
        data::encode_completion(row.question, between, row.answers.front(), encoder_, length_);
    const auto most = static_cast<size_t>(length_);
    prefix.resize(std::min(prefix.size(), most));
    text.resize(std::min(text.size(), most - prefix.size()));
    return {std::move(prefix), std::move(text)};
  }
  /// Adds a row for each answer of a question file, or for each chunk of a text file. Returns the
  /// number of rows.
  int64_t add_all(const std::vector<std::string>& words, const char* key, EncodedRows& rows) const {
    const size_t before = rows.answers.size();
    const int64_t without_before = rows.without_answer;
    const data::Format format = data_options(config_.data).format;
    const auto &text_key = config_.unlearning.text_key, &prefix_key = config_.unlearning.prefix_key;
    if (text_key && prefix_key) {
      for (const data::Question& row :
           data::read_completions(words, format, key, *prefix_key, *text_key).rows) {
        add(completion(row), rows);
      }
    } else if (text_key) {
      const auto texts = data::read_texts(words, format, key, *text_key);
      std::ranges::move(
          data::encode_texts(texts, *tokenizer_, encoder_, length_),
          std::back_inserter(rows.answers));
    } else {
      for (const data::Question& row : read(words, key, false).rows) {
        for (const std::string& answer : row.answers) {
          add(row.question, answer, rows);
        }
      }
    }
    const auto added = static_cast<int64_t>(rows.answers.size() - before);
    if (added > 0 && rows.without_answer - without_before == added) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{}: no tokens are left of {} answers: the questions alone are longer than "
              "data.sequence_length={}",
              key,
              added,
              length_),
          "raise data.sequence_length");
    }
    return added;
  }
  /// Moves the first tokens of each answer to its prompt.
  void skip_first(EncodedRows& rows) const {
    for (auto& [prompt, ids] : rows.answers) {
      const auto skipped = std::min<std::ptrdiff_t>(
          std::ssize(ids), config_.unlearning.ignore_first_n_answer_tokens);
      prompt.insert(prompt.end(), ids.begin(), ids.begin() + skipped);
      ids.erase(ids.begin(), ids.begin() + skipped);
    }
  }
  /// Adds alternative answers and returns their number per question.
  int64_t add_alternates(const data::Questions& questions, EncodedRows& rows) const {
    const config::UnlearningSection& section = config_.unlearning;
    std::vector<std::pair<const data::Question*, int64_t>> each;  // forget row and its index
    for (const data::Question& row : questions.rows) {
      for (size_t i = 0; i < row.answers.size(); ++i) {
        each.emplace_back(&row, std::ssize(each));
      }
    }
    if (section.refusals.empty()) {
      for (const auto& [row, number] : each) {
        add(row->question, row->alternate, rows);
      }
      return 1;
    }
    const std::vector<std::string> refusals = data::read_refusals(section.refusals);
    const int64_t turns = std::min<int64_t>(kRefusalsOfARow, std::ssize(refusals));
    const uint64_t key = derive_key(data_seed(config_), hash_name("refusal"));
    for (int64_t turn = 0; turn < turns; ++turn) {
      for (const auto& [row, number] : each) {
        const auto counter = static_cast<uint64_t>(turn * std::ssize(each) + number);
        add(row->question, refusals[random_bits(key, counter) % refusals.size()], rows);
      }
    }
    return turns;
  }

  const config::Config& config_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  data::Encoder encoder_;
  data::QuestionTemplate form_;
  int64_t length_;
};

void check_unlearned_model(const config::Config& config, const model::ModelConfig& model) {
  const config::UnlearningSection& section = config.unlearning;
  if (!section.method || (section.forget.empty() && section.retain.empty())) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.type=unlearning, but no {} set",
            section.method ? "rows are" : "unlearning.method is"),
        "set both: unlearning.method=NPO unlearning.forget=FILE unlearning.retain=FILE");
  }
  const bool has_encoder = model.is_encoder_decoder() || model.bidirectional;
  if (has_encoder || model.head.classifies()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.type=unlearning requires a decoder-only language model, but this is {}",
            has_encoder ? model::family_name(model.family) : "a classifier"),
        "use the folder of a decoder-only language model");
  }
}

UnlearningCounts counts_of_rows(const EncodedRows& rows) {
  return {
      rows.parts.forget,
      rows.parts.forget * rows.parts.alternates,
      rows.parts.retain,
      rows.without_answer,
      rows.cut};
}

std::vector<data::RowRole> roles_of(const data::PartnerRows& parts) {
  std::vector<data::RowRole> roles(static_cast<size_t>(parts.forget), data::RowRole::kForget);
  roles.insert(
      roles.end(), static_cast<size_t>(parts.forget * parts.alternates), data::RowRole::kChosen);
  roles.insert(roles.end(), static_cast<size_t>(parts.retain), data::RowRole::kRetain);
  return roles;
}

at::Tensor of_kind(const nn::Targets& targets, nn::RowKind kind) {
  return targets.kinds.eq(static_cast<int64_t>(kind));
}

/// Returns a mask [B, T] of the positions within each row's length. With `padding`, the length is
/// that of the longest row of its kind.
at::Tensor within_rows(
    const nn::ForwardInputs& inputs,
    std::span<const int64_t> of_rows,
    nn::RowKind kind,
    bool padding) {
  const at::Tensor are = of_kind(inputs.targets, kind);
  at::Tensor lengths = at::tensor(at::IntArrayRef(of_rows.data(), of_rows.size()), at::kLong) * are;
  if (padding) {
    lengths = lengths.max() * are;
  }
  if (inputs.targets.documents
          .defined()) {  // every token of packed rows except padding belongs to a row
    const at::Tensor& real = inputs.real_tokens;
    const at::Tensor of_kind = inputs.targets.to_tokens(are);
    return real.defined() ? of_kind.logical_and(real) : of_kind;
  }
  return at::arange(inputs.ids.size(1)).lt(lengths.unsqueeze(1));
}

}  // namespace

bool needs_row_scores(const config::UnlearningSection& section) {
  return config::method_of(section).reads_scores;
}

objective::ObjectivePointer unlearning_objective(const config::UnlearningSection& section) {
  const config::UnlearningMethod& method = config::method_of(section);
  objective::UnlearningOptions options;
  options.gamma = section.gamma.value_or(method.gamma);
  options.alpha = config::alpha_of(section);
  options.beta = beta_of(section);
  options.delta = section.delta;
  options.retain_bound = section.retain_loss_eps.value_or(0);
  options.means = section.compatibility == "upstream" ? objective::Means::kOfMicroBatches
                                                      : objective::Means::kOfStep;
  if (method.name == "NPO") {
    return objective::negative_preference(options);
  }
  if (method.name == "SimNPO") {
    return objective::simple_negative_preference(options);
  }
  if (method.name == "DPO") {
    return objective::alternate_preference(options);
  }
  if (method.name == "UNDIAL") {
    return objective::lowered_distribution(options);
  }
  if (method.steers) {
    return objective::steered_states(options);
  }
  if (method.levels) {
    return objective::level_distribution(options);
  }
  if (method.name == "CEU") {
    options.gamma = 1;
    return objective::others_instead(options);
  }
  if (method.name == "WGA") {
    return objective::weighted_ascent(options);
  }
  if (method.name == "SatImp") {
    options.beta = section.beta1;
    options.saturation = section.beta2;
    return objective::weighted_ascent(options);
  }
  if (method.name == "GradAscent") {
    options.gamma = 1;
  }
  return objective::gradient_difference(options);
}

std::optional<model::HeadSpec> end_at_layer(
    config::Config& config, const model::ModelConfig& model) {
  const config::UnlearningSection& section = config.unlearning;
  if (!unlearns(config.task) || !config::method_of(section).steers) {
    return std::nullopt;
  }
  const model::HeadSpec head =
      model::states_head(model::layers_through(model, section.module_regex));
  if (config.lora == config::LoraSection{}) {
    if (auto others =
            model::freeze_all_but(model::with_head(model, head), section.trainable_params_regex)) {
      config.model.freeze.push_back(std::move(*others));
    }
  } else if (config.lora.adapter.empty() && config.lora.layers_to_transform.empty()) {
    // Without this, PEFT would look for adapters in later layers.
    for (int64_t layer = 0; layer < head.layers; ++layer) {
      config.lora.layers_to_transform.push_back(std::to_string(layer));
    }
  }
  return head;
}

at::Tensor steering_target(const config::Config& config, int64_t hidden_size) {
  const uint64_t key =
      derive_key(static_cast<uint64_t>(config.training.seed), hash_name("steering"));
  at::Tensor direction = at::empty({hidden_size}, at::kFloat);
  auto number = direction.accessor<float, 1>();
  for (int64_t i = 0; i < hidden_size; ++i) {
    number[i] = random_uniform(key, static_cast<uint64_t>(i));
  }
  return direction * (config.unlearning.steering_coeff / direction.norm());
}

data::QuestionTemplate question_template(
    const config::UnlearningSection& section, const text::Tokenizer& tokenizer) {
  data::QuestionTemplate form;
  form.user_start = section.user_start;
  form.user_end = section.user_end;
  form.answer_start = section.answer_start;
  form.system = section.system_prompt;
  form.date = section.date_string;
  form.counts_prompt = section.compatibility == "upstream";
  if (section.chat_template) {
    form.form = data::chat_form(tokenizer);
  }
  return form;
}

std::string UnlearningCounts::text(const config::UnlearningSection& section) const {
  std::string text =
      fmt::format("unlearning.method={}: {} rows to forget", section.method.value_or(""), forget);
  if (alternates > 0) {
    text += fmt::format(", {} alternative answers", alternates);
  }
  if (retain > 0) {
    text += fmt::format(", {} to keep ({})", retain, config::retain_loss_of(section));
  }
  text += section.compatibility == "upstream"
              ? "; losses are means per micro-batch, and an update uses the mean of these"
              : "; losses are means per step";
  if (without_answer > 0) {
    text += fmt::format(
        "; {} rows are skipped because the question alone fills data.sequence_length",
        without_answer);
  }
  if (cut > 0) {
    text += fmt::format("; {} answers are truncated to data.sequence_length", cut);
  }
  return text;
}

UnlearningCounts count_unlearning(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length) {
  check_unlearned_model(config, model);
  config::Config changed = config;
  (void)end_at_layer(changed, model);  // throws if the layer or parameters do not exist
  return counts_of_rows(RowEncoder(config, tokenizer, sequence_length).all());
}

UnlearningRows open_unlearning_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator) {
  check_unlearned_model(config, model);
  const config::UnlearningSection& section = config.unlearning;
  const std::string answer = on_first_rank(communicator, [&] {
    RowEncoder rows_of(config, tokenizer, sequence_length);
    const EncodedRows rows = rows_of.all();
    log_info("{}", counts_of_rows(rows).text(section));
    const int32_t pad = padding_of_answers(model, *tokenizer);
    const std::string path =
        data::write_answers(
            rows.answers,
            {.length = sequence_length},
            config::cache_folder(config.data.cache_dir),
            rows_of.encoder(),
            std::max({rows_of.encoder().vocabulary_size, model.vocab_size, int64_t{pad} + 1}),
            pad)
            .string();
    return nlohmann::json{
        {"rows", path},
        {"forget", rows.parts.forget},
        {"alternates", rows.parts.alternates},
        {"retain", rows.parts.retain}}
        .dump();
  });
  const auto json = nlohmann::json::parse(answer);
  data::PartnerRows parts;
  parts.forget = json.at("forget");
  parts.alternates = json.at("alternates");
  parts.retain = json.at("retain");
  parts.retain_leads = retain_leads(section);
  parts.seed = data_seed(config);
  const std::shared_ptr<const data::TokenDataset> dataset =
      data::TokenDataset::open(json.at("rows").get<std::string>());
  data::AnswerRows drawn;
  drawn.roles = roles_of(parts);
  drawn.at_once = parts.rows_at_once();
  drawn.partners = parts;
  data::AnswerRows scored;
  scored.roles.assign(
      drawn.roles.begin(), drawn.roles.end() - static_cast<std::ptrdiff_t>(parts.retain));
  const bool packs = packs_rows(config, model);
  const auto view_of = [&](data::AnswerRows answers) {
    auto view = std::make_shared<data::SequenceView>(dataset, sequence_length, std::move(answers));
    view->set_packed(packs);
    return view;
  };
  UnlearningRows rows;
  rows.train = view_of(std::move(drawn));
  if (needs_row_scores(section)) {
    rows.scored = view_of(std::move(scored));
  }
  return rows;
}

namespace {

/// Marks the forget positions whose logits should be uniform: the positions that predict a token,
/// or with compatibility=upstream the positions of the tokens themselves.
void mark_level(nn::Targets& targets, bool is_upstream) {
  at::Tensor positions = targets.tokens.ne(ops::kIgnoredTarget);
  if (is_upstream) {
    positions = at::constant_pad_nd(positions.narrow(1, 0, positions.size(1) - 1), {1, 0}, false);
  }
  const at::Tensor forget = targets.to_tokens(of_kind(targets, nn::RowKind::kForget));
  targets = nn::with_level(std::move(targets), positions.logical_and(forget));
}

}  // namespace

void mark_distributions(
    nn::ForwardInputs& inputs,
    std::span<const int64_t> lengths,
    const config::UnlearningSection& section,
    int64_t vocabulary) {
  const bool is_upstream = section.compatibility == "upstream";
  nn::Targets& targets = inputs.targets;
  if (config::method_of(section).steers) {
    targets = nn::with_states(std::move(targets));
    return;
  }
  if (config::method_of(section).levels) {
    mark_level(targets, is_upstream);
  }
  if (config::method_of(section).excludes_tokens) {
    const at::Tensor positions = targets.tokens.ne(ops::kIgnoredTarget);
    targets = nn::with_other_tokens(std::move(targets), positions);
  }
  if (!needs_distributions(section)) {
    return;
  }
  const at::Tensor labels = targets.tokens, have_labels = labels.ne(ops::kIgnoredTarget);
  at::Tensor kept = at::zeros_like(have_labels), lowered = kept;
  if (config::retain_loss_of(section) == "KL" && keeps_rows(section)) {
    kept = within_rows(inputs, lengths, nn::RowKind::kRetain, is_upstream);
  }
  if (config::method_of(section).reads_distributions) {
    lowered = within_rows(inputs, lengths, nn::RowKind::kForget, is_upstream);
    // The last position predicts nothing.
    const at::Tensor behind =
        at::constant_pad_nd(lowered.narrow(1, 1, lowered.size(1) - 1), {0, 1}, false);
    lowered = is_upstream ? behind : lowered.logical_and(have_labels);
  }
  targets = nn::with_distributions(
      targets,
      kept.logical_or(lowered),
      at::where(
          have_labels,
          labels,
          at::full_like(labels, std::max<int64_t>(vocabulary - kUpstreamColumn, 0))),
      lowered.to(at::kDouble) * beta_of(section));
}

void RetainWeight::mark(nn::Targets& targets) const {
  targets.weights = at::full_like(targets.counts, value_);
}

void RetainWeight::follow(double retain_loss) {
  if (std::isfinite(retain_loss)) {
    const double above = retain_loss - section_.retain_loss_eps.value_or(0);
    value_ = std::max(0.0, value_ + section_.dual_step_size * above);
  }
}

}  // namespace lockstep::train
