#include "train/tasks/tofu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "metrics/ranking.h"
#include "metrics/rouge.h"
#include "metrics/unlearning.h"
#include "train/tasks/unlearning.h"

namespace lockstep::train {
namespace {

using nlohmann::json;

constexpr const char* kParaphrased = "paraphrased_answer";
constexpr const char* kPerturbed = "perturbed_answer";
constexpr const char* kModelKey = "model_hash";
constexpr double kShareOfTokens = 0.4;  // of min_k

/// What model_utility is the harmonic mean of.
constexpr const char* kUtility[] = {
    "retain_Q_A_Prob",
    "retain_Q_A_ROUGE",
    "retain_Truth_Ratio",
    "ra_Q_A_Prob_normalised",
    "ra_Q_A_ROUGE",
    "ra_Truth_Ratio",
    "wf_Q_A_Prob_normalised",
    "wf_Q_A_ROUGE",
    "wf_Truth_Ratio"};

double mean_of_numbers(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

json number(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

/// {"0": {"score": x}, ...}, and their mean by `aggregate`.
json scored_rows(const std::vector<double>& scores, double aggregate) {
  json rows = json::object();
  for (size_t row = 0; row < scores.size(); ++row) {
    rows[std::to_string(row)] = {{"score", number(scores[row])}};
  }
  return {{"agg_value", number(aggregate)}, {"value_by_index", rows}};
}

/// A list's value stands as a list, another alone.
json as_the_field_is(const std::vector<double>& values, bool is_list) {
  return is_list ? json(values) : json(values.front());
}

/// Without the last of an answer's tokens, its end of text.
size_t without_end(const AnswerScore& score) {
  return score.log_likelihoods.empty() ? 0 : score.log_likelihoods.size() - 1;
}

}  // namespace

std::vector<double> truth_ratios_of(const json& results) {
  std::vector<double> ratios;
  if (!results.is_object() || !results.contains("forget_truth_ratio")) {
    return ratios;
  }
  for (const auto& [index, value] : results["forget_truth_ratio"]["value_by_index"].items()) {
    if (value.is_object() && value.contains("score") && value["score"].is_number()) {
      ratios.push_back(value["score"]);
    }
  }
  return ratios;
}

RetainedResults read_retained(
    const std::filesystem::path& path, const std::optional<size_t>& rows) {
  const json results = read_json(path);
  RetainedResults found;
  const auto fail = [&](const std::string& what) {
    throw Error(
        ErrorKind::kData,
        fmt::format("unlearning.retain_logs_path: {} {}", path.string(), what),
        "give the TOFU_EVAL.json of a model that was trained without what is to be forgotten, "
        "evaluated on the same files");
  };
  const char* key = rows ? "forget_truth_ratio" : "mia_min_k";
  if (!results.is_object() || !results.contains(key)) {
    fail(fmt::format("has no {}", key));
  }
  found.truth_ratios = truth_ratios_of(results);
  if (rows && found.truth_ratios.size() != *rows) {
    fail(fmt::format("has {} rows, where forget_split has {}", found.truth_ratios.size(), *rows));
  }
  if (const auto attack = results.find("mia_min_k"); attack != results.end() &&
                                                     attack->contains("agg_value") &&
                                                     (*attack)["agg_value"].is_number()) {
    found.min_k_auc = (*attack)["agg_value"];
  }
  return found;
}

TofuSuite::TofuSuite(
    const config::Config& config,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    std::vector<int64_t> stop_tokens,
    int64_t length,
    AnswerReader* reader)
    : config_(config),
      section_(config.unlearning),
      tokenizer_(tokenizer),
      stop_tokens_(std::move(stop_tokens)),
      length_(length),
      reader_(reader),
      encoder_(data::make_encoder(tokenizer)),
      form_(question_template(config.unlearning, *tokenizer)) {
  if (section_.data_dir.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "unlearning.data_dir is not given",
        "give the folder of TOFU's files: FORGET_perturbed.jsonl, retain_perturbed.jsonl, "
        "real_authors_perturbed.jsonl, world_facts_perturbed.jsonl, HOLDOUT.jsonl");
  }
  // What is missing is told before anything is computed.
  if (is_muse() && form_.form != data::QuestionTemplate::Form::kTags) {
    throw Error(
        ErrorKind::kConfig,
        "MUSE's questions with examples are not written as a chat template",
        "set unlearning.chat_template=false");
  }
  const std::string forget = forgotten();
  for (const std::string& metric : config::metrics_of(section_)) {
    (void)dataset(forget, "answer");
    if (metric.ends_with("_knowmem_ROUGE")) {
      (void)dataset(knowledge_of(metric), "answer");
    } else if (metric == "forget_truth_ratio" || metric == "forget_quality") {
      (void)dataset(forget, kParaphrased);
      (void)dataset(forget, kPerturbed);
    } else if (metric == "model_utility") {
      (void)dataset("retain_perturbed", kParaphrased);
      for (const char* name :
           {"retain_perturbed", "real_authors_perturbed", "world_facts_perturbed"}) {
        (void)dataset(name, kPerturbed);
        (void)dataset(name, "answer");
      }
    } else if (metric == "privleak" || metric.starts_with("mia_")) {
      for (const std::string& set : attacked()) {
        (void)dataset(set, "answer");
      }
    }
  }
  if (section_.retain_logs_path) {
    retained_ = read_retained(
        *section_.retain_logs_path,
        is_muse() ? std::nullopt : std::optional(dataset(forget, "answer").questions.rows.size()));
  }
}

std::filesystem::path TofuSuite::file_of(const std::string& name) const {
  const std::filesystem::path folder = section_.data_dir;
  std::filesystem::path file;
  for (const char* ending : {".jsonl", ".json", ".csv"}) {
    std::error_code ignored;
    const std::filesystem::path candidate = folder / (name + ending);
    if (file.empty() && std::filesystem::exists(candidate, ignored)) {
      file = candidate;
    }
  }
  if (file.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "unlearning.metrics need {}, and {} has no such file",
            name + ".jsonl",
            folder.string()),
        "give the folder of TOFU's files, and unlearning.forget_split and holdout_split that it "
        "has");
  }
  return file;
}

TofuSuite::Dataset& TofuSuite::dataset(const std::string& name, const std::string& answer_key) {
  const auto found = datasets_.find(name + "/" + answer_key);
  if (found != datasets_.end()) {
    return found->second;
  }
  const std::filesystem::path file = file_of(name);
  Dataset made = is_muse() ? texts_of(name, file) : questions_of(name, answer_key, file);
  return datasets_.emplace(name + "/" + answer_key, std::move(made)).first->second;
}

TofuSuite::Dataset TofuSuite::questions_of(
    const std::string& name, const std::string& answer_key, const std::filesystem::path& file) {
  const bool asks_forgotten = name.starts_with("forget");
  Dataset made;
  made.questions = data::read_questions(
      std::vector{file.string()},
      data::Format::kAuto,
      "unlearning.data_dir",
      {asks_forgotten ? section_.question_key : "question", answer_key, ""});
  for (const data::Question& row : made.questions.rows) {
    for (const std::string& answer : row.answers) {
      made.encoded[answer_key].push_back(
          data::encode_question(row.question, answer, form_, encoder_, length_));
    }
  }
  return made;
}

/// MUSE's: questions after examples, prompts that texts follow, and texts.
TofuSuite::Dataset TofuSuite::texts_of(const std::string& name, const std::filesystem::path& file) {
  const std::vector<std::string> words{file.string()};
  const auto read =
      [&](const std::vector<std::string>& files, const char* question, const char* answer) {
        return data::read_questions(
            files, data::Format::kAuto, "unlearning.data_dir", {question, answer, ""});
      };
  Dataset made;
  if (name.starts_with("knowmem/")) {
    made.questions = read(words, "question", "answer");
    made.form = form_;
    made.form.user_start.clear();
    for (const data::Question& row :
         read({file_of(name + "_icl").string()}, "question", "answer").rows) {
      made.form.user_start += form_.user_start + row.question + form_.user_end +
                              form_.answer_start + row.answers.front() + section_.answer_end;
    }
    made.form.user_start += form_.user_start;
    return made;
  }
  if (name.starts_with("verbmem/")) {
    made.questions = read(words, "prompt", "gt");
  } else {
    for (const std::string& text :
         data::read_texts(words, data::Format::kAuto, "unlearning.data_dir", "text")) {
      data::Question& row = made.questions.rows.emplace_back();
      row.answers = {text};
    }
  }
  for (const data::Question& row : made.questions.rows) {
    made.encoded["answer"].push_back(
        data::encode_completion(row.question, row.answers.front(), encoder_, length_));
  }
  return made;
}

const std::vector<AnswerScore>& TofuSuite::scores(
    const std::string& name, const std::string& answer_key) {
  Dataset& set = dataset(name, answer_key);
  if (set.scored.empty()) {
    set.scored[answer_key] = reader_->score(set.encoded[answer_key]);
  }
  return set.scored[answer_key];
}

std::vector<std::vector<double>> TofuSuite::losses(
    const std::string& name, const std::string& answer_key) {
  const std::vector<AnswerScore>& all = scores(name, answer_key);
  std::vector<std::vector<double>> result;
  size_t next = 0;
  for (const data::Question& row : dataset(name, answer_key).questions.rows) {
    std::vector<double>& answers = result.emplace_back();
    for (size_t i = 0; i < row.answers.size(); ++i) {
      answers.push_back(all[next++].loss());
    }
  }
  return result;
}

std::vector<double> TofuSuite::losses_of_forgotten() {
  std::vector<double> result;
  for (const AnswerScore& score : scores(forgotten(), "answer")) {
    result.push_back(score.loss());
  }
  return result;
}

json TofuSuite::probabilities(const std::string& name, const std::string& answer_key) {
  const std::vector<std::vector<double>> all = losses(name, answer_key);
  const data::Questions& questions = dataset(name, answer_key).questions;
  json rows = json::object();
  std::vector<double> means;
  for (size_t row = 0; row < all.size(); ++row) {
    std::vector<double> likely;
    for (const double loss : all[row]) {
      likely.push_back(metrics::probability(loss));
    }
    const bool is_list = questions.rows[row].is_list;
    rows[std::to_string(row)] = {
        {"prob", as_the_field_is(likely, is_list)},
        {"avg_loss", as_the_field_is(all[row], is_list)}};
    means.push_back(mean_of_numbers(likely));
  }
  return {{"agg_value", mean_of_numbers(means)}, {"value_by_index", rows}};
}

json TofuSuite::rouges(const std::string& name) {
  constexpr int64_t kKnown = 32, kVerbatim = 128;  // tokens of an answer, in MUSE
  Dataset& set = dataset(name, "answer");
  const bool is_text = name.starts_with("verbmem/"), is_known = name.starts_with("knowmem/");
  const data::QuestionTemplate& form = is_known ? set.form : form_;
  std::vector<AskedQuestion> asked;
  for (const data::Question& row : set.questions.rows) {
    const std::string& answer = row.answers.front();
    AskedQuestion& each = asked.emplace_back();
    if (is_text) {
      const data::EncodedAnswer& text = set.encoded["answer"][asked.size() - 1];
      each = {data::encode_completion(row.question, "", encoder_, 0).prompt, text.answer};
      continue;
    }
    const data::EncodedAnswer whole =
        data::encode_question(row.question, answer, form, encoder_, length_);
    each.prompt = data::encode_prompt(row.question, answer, form, encoder_, length_);
    each.whole = whole.prompt;
    each.whole.insert(each.whole.end(), whole.answer.begin(), whole.answer.end());
  }
  const int64_t most = std::min(
      section_.max_new_tokens,
      is_known  ? kKnown
      : is_text ? kVerbatim
                : section_.max_new_tokens);
  const std::vector<WrittenAnswer> written = reader_->write(
      asked,
      most,
      stop_tokens_,
      is_known ? std::vector<std::string>{"\n\n", "\nQuestion", "Question:"}
               : std::vector<std::string>{});
  json rows = json::object();
  std::vector<double> recalls;
  for (size_t row = 0; row < written.size(); ++row) {
    const WrittenAnswer& answer = written[row];
    const metrics::Rouge found = metrics::rouge(answer.ground_truth, answer.generation);
    recalls.push_back(is_muse() ? found.rougeL_f1 : found.rougeL_recall);
    rows[std::to_string(row)] = {
        {"rouge1_recall", found.rouge1_recall},
        {"rougeL_f1", found.rougeL_f1},
        {"rougeL_recall", found.rougeL_recall},
        {"input", answer.input},
        {"ground_truth", answer.ground_truth},
        {"generation", answer.generation}};
  }
  return {{"agg_value", mean_of_numbers(recalls)}, {"value_by_index", rows}};
}

json TofuSuite::among_options(const std::string& name) {
  const auto correct = losses(name, "answer"), wrong = losses(name, kPerturbed);
  json rows = json::object();
  std::vector<double> each;
  for (size_t row = 0; row < correct.size(); ++row) {
    each.push_back(metrics::probability_among(correct[row].front(), wrong[row]));
    rows[std::to_string(row)] = {{"prob", each.back()}};
  }
  return {{"agg_value", mean_of_numbers(each)}, {"value_by_index", rows}};
}

json TofuSuite::truth_ratios(
    const std::string& name, const std::string& correct_key, bool truth_is_better) {
  const auto correct = losses(name, correct_key), wrong = losses(name, kPerturbed);
  std::vector<double> ratios;
  for (size_t row = 0; row < correct.size(); ++row) {
    ratios.push_back(metrics::truth_ratio(mean_of_numbers(correct[row]), wrong[row]));
  }
  return scored_rows(
      ratios,
      truth_is_better ? metrics::truth_is_better(ratios)
                      : metrics::closer_to_one_is_better(ratios));
}

json TofuSuite::of_tokens(const std::string& metric) {
  std::vector<double> each, counted;
  for (const AnswerScore& score : scores(forgotten(), "answer")) {
    const size_t tokens = without_end(score);
    const auto likeliest = std::make_unique<bool[]>(tokens);
    std::copy_n(score.likeliest.begin(), tokens, likeliest.get());
    const std::span<const bool> all(likeliest.get(), tokens);
    each.push_back(
        metric == "exact_memorization"
            ? metrics::exact_memorization(all)
            : metrics::extraction_strength(
                  all,
                  section_.compatibility == "upstream" ? metrics::LeastExtraction::kOneToken
                                                       : metrics::LeastExtraction::kZero));
    if (!std::isnan(each.back())) {
      counted.push_back(each.back());
    }
  }
  return scored_rows(each, mean_of_numbers(counted));
}

std::vector<double> TofuSuite::attack(const std::string& metric, const std::string& name) {
  const std::vector<data::EncodedAnswer>& rows = dataset(name, "answer").encoded["answer"];
  if (metric == "mia_gradnorm") {
    return reader_->gradient_norms(rows);
  }
  std::vector<double> each;
  if (metric == "mia_min_k_plus_plus") {
    for (std::vector<double>& tokens : reader_->standard_scores(rows)) {
      tokens.resize(tokens.empty() ? 0 : tokens.size() - 1);
      each.push_back(metrics::min_k(std::move(tokens), kShareOfTokens));
    }
    return each;
  }
  const std::vector<AnswerScore>& all = scores(name, "answer");
  for (size_t row = 0; row < all.size(); ++row) {
    if (metric == "mia_min_k") {
      std::vector<double> tokens = all[row].log_likelihoods;
      tokens.resize(without_end(all[row]));
      each.push_back(metrics::min_k(std::move(tokens), kShareOfTokens));
    } else if (metric == "mia_zlib") {
      const std::string text =
          clean_up_tokenization(tokenizer_->decode(rows[row].answer, text::DecodedSpecials::kSkip));
      each.push_back(all[row].loss() / static_cast<double>(metrics::compressed_length(text)));
    } else if (metric == "mia_reference") {
      each.push_back(all[row].loss() - reference_losses_.at(name)[row]);
    } else {
      each.push_back(all[row].loss());
    }
  }
  return each;
}

void TofuSuite::read_reference(AnswerReader& reader) {
  for (const std::string& name : attacked()) {
    for (const AnswerScore& score : reader.score(dataset(name, "answer").encoded["answer"])) {
      reference_losses_[name].push_back(score.loss());
    }
  }
}

json TofuSuite::membership(const std::string& metric) {
  const std::array<std::string, 2> sets = attacked();
  const std::vector<double> forget = attack(metric, sets[0]), holdout = attack(metric, sets[1]);
  metrics::Ranking ranking;
  for (const auto& [set, is_holdout] : {std::pair{&forget, false}, {&holdout, true}}) {
    for (const double score : *set) {
      ranking.scores.push_back(score);
      ranking.truth.push_back(is_holdout);
    }
  }
  const double auc = metrics::roc_auc(ranking);
  return {
      {"forget", scored_rows(forget, mean_of_numbers(forget))},
      {"holdout", scored_rows(holdout, mean_of_numbers(holdout))},
      {"auc", number(auc)},
      {"agg_value", number(auc)}};
}

json TofuSuite::forget_quality(json& results) {
  measure("forget_truth_ratio", results);
  if (retained_.truth_ratios.empty()) {
    warnings_.push_back(
        "forget_quality is null: it compares with a model that never saw what was to be forgotten "
        "(unlearning.retain_logs_path)");
    return {{"agg_value", nullptr}};
  }
  std::vector<double> ratios;
  for (const auto& [index, row] : results["forget_truth_ratio"]["value_by_index"].items()) {
    ratios.push_back(row["score"]);
  }
  return {
      {"agg_value", number(metrics::kolmogorov_smirnov(ratios, retained_.truth_ratios).p_value)}};
}

json TofuSuite::utility(json& results) {
  std::vector<double> values;
  for (const char* name : kUtility) {
    measure(name, results);
    values.push_back(results[name]["agg_value"]);
  }
  return {{"agg_value", number(metrics::harmonic_mean(values))}};
}

json TofuSuite::leakage(json& results) {
  constexpr double kWithoutReference = 0.5;
  measure("mia_min_k", results);
  if (retained_.min_k_auc < 0) {
    warnings_.push_back(
        "privleak compares with an AUC of 0.5: unlearning.retain_logs_path tells of no mia_min_k");
  }
  const json& auc = results["mia_min_k"]["agg_value"];
  const double reference = retained_.min_k_auc < 0 ? kWithoutReference : retained_.min_k_auc;
  return {
      {"agg_value",
       auc.is_number() ? number(metrics::privacy_leakage(auc, reference)) : json(nullptr)}};
}

json TofuSuite::make(const std::string& name, json& results) {
  const std::string forget = forgotten();
  const std::map<std::string, std::function<json()>> makers = {
      {"forget_quality", [&] { return forget_quality(results); }},
      {"model_utility", [&] { return utility(results); }},
      {"privleak", [&] { return leakage(results); }},
      {"exact_memorization", [&] { return of_tokens(name); }},
      {"extraction_strength", [&] { return of_tokens(name); }},
      {"forget_knowmem_ROUGE", [&] { return rouges(knowledge_of(name)); }},
      {"retain_knowmem_ROUGE", [&] { return rouges(knowledge_of(name)); }},
      {"forget_verbmem_ROUGE", [&] { return rouges(forgotten()); }},
      {"forget_truth_ratio",
       [&] {
         measure("forget_Q_A_PARA_Prob", results);
         measure("forget_Q_A_PERT_Prob", results);
         return truth_ratios(forget, kParaphrased, false);
       }},
      {"retain_Truth_Ratio",
       [&] {
         measure("retain_Q_A_PARA_Prob", results);
         measure("retain_Q_A_PERT_Prob", results);
         return truth_ratios("retain_perturbed", kParaphrased, true);
       }},
  };
  if (const auto found = makers.find(name); found != makers.end()) {
    return found->second();
  }
  if (name.starts_with("mia_")) {
    return membership(name);
  }
  const std::string prefix = name.substr(0, name.find('_')), kind = name.substr(prefix.size() + 1);
  const std::string set = prefix == "forget"   ? forget
                          : prefix == "retain" ? "retain_perturbed"
                          : prefix == "ra"     ? "real_authors_perturbed"
                                               : "world_facts_perturbed";
  if (kind == "Q_A_ROUGE") {
    return rouges(set);
  }
  if (kind == "Truth_Ratio" || kind == "Q_A_Prob_normalised") {
    measure(prefix + "_Q_A_Prob", results);
    measure(prefix + "_Q_A_PERT_Prob", results);
    return kind == "Truth_Ratio" ? truth_ratios(set, "answer", true) : among_options(set);
  }
  return probabilities(
      set,
      kind == "Q_A_PARA_Prob"   ? kParaphrased
      : kind == "Q_A_PERT_Prob" ? kPerturbed
                                : "answer");
}

void TofuSuite::measure(const std::string& name, json& results) {
  if (!results.contains(name)) {
    json made = make(name, results);
    results[name] = std::move(made);
  }
}

const char* results_file(const config::UnlearningSection& section) {
  return section.benchmark == "muse" ? "MUSE_EVAL.json" : "TOFU_EVAL.json";
}

void write_tofu(
    const std::filesystem::path& folder,
    const json& results,
    const config::UnlearningSection& section) {
  constexpr int kIndent = 4;
  create_folders(folder, ErrorKind::kRun);
  write_file_atomically(folder / results_file(section), results.dump(kIndent), ErrorKind::kRun);
  json summary = json::object();
  for (const std::string& metric : config::metrics_of(section)) {
    if (results.contains(metric) && results[metric]["agg_value"].is_number()) {
      summary[metric] = results[metric]["agg_value"];
    }
  }
  const char* name = section.benchmark == "muse" ? "MUSE_SUMMARY.json" : "TOFU_SUMMARY.json";
  write_file_atomically(folder / name, summary.dump(kIndent), ErrorKind::kRun);
}

json read_tofu(
    const std::filesystem::path& folder,
    const config::UnlearningSection& section,
    const std::string& model) {
  const std::filesystem::path path = folder / results_file(section);
  if (!std::filesystem::exists(path)) {
    return json::object({{kModelKey, model}});
  }
  json results = read_json(path);
  const std::string there =
      results.is_object() && results.contains(kModelKey) && results[kModelKey].is_string()
          ? results[kModelKey].get<std::string>()
          : "";
  if (there != model) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} {}",
            path.string(),
            there.empty() ? "does not say which model it is of" : "is of another model"),
        "unlearning.overwrite=true measures everything again; or give another folder");
  }
  return results;
}

}  // namespace lockstep::train
