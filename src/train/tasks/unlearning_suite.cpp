// Computes the unlearning metrics of TOFU and MUSE.
#include "train/tasks/unlearning_suite.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "metrics/ranking.h"
#include "metrics/rouge.h"
#include "metrics/unlearning.h"

namespace lockstep::train {
namespace {

using nlohmann::json;

constexpr const char* kParaphrased = "paraphrased_answer";
constexpr const char* kPerturbed = "perturbed_answer";
constexpr double kShareOfTokens = 0.4;  // for min_k

/// Components of model_utility, which is their harmonic mean.
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

/// Returns {"0": {"score": x}, ...} and the aggregate value.
json scored_rows(const std::vector<double>& scores, double aggregate) {
  json rows = json::object();
  for (size_t row = 0; row < scores.size(); ++row) {
    rows[std::to_string(row)] = {{"score", number(scores[row])}};
  }
  return {{"agg_value", number(aggregate)}, {"value_by_index", rows}};
}

/// Returns a list if the field is a list, otherwise the only value.
json as_the_field_is(const std::vector<double>& values, bool is_list) {
  return is_list ? json(values) : json(values.front());
}

/// Returns the number of an answer's tokens without the end-of-text token.
size_t without_end(const AnswerScore& score) {
  return score.log_likelihoods.empty() ? 0 : score.log_likelihoods.size() - 1;
}

}  // namespace

UnlearningSuite::UnlearningSuite(
    const config::Config& config,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    std::vector<int64_t> stop_tokens,
    int64_t length,
    AnswerReader* reader)
    : section_(config.unlearning),
      tokenizer_(tokenizer),
      stop_tokens_(std::move(stop_tokens)),
      reader_(reader),
      questions_(config.unlearning, tokenizer, length) {
  // Report missing files before any computation.
  const std::string forget = questions_.forgotten();
  for (const std::string& metric : config::metrics_of(section_)) {
    need(forget, "answer");
    if (metric.ends_with("_knowmem_ROUGE")) {
      need(questions_.knowledge_of(metric), "answer");
    } else if (metric == "forget_truth_ratio" || metric == "forget_quality") {
      need(forget, kParaphrased);
      need(forget, kPerturbed);
    } else if (metric == "model_utility") {
      need("retain_perturbed", kParaphrased);
      for (const char* name :
           {"retain_perturbed", "real_authors_perturbed", "world_facts_perturbed"}) {
        need(name, kPerturbed);
        need(name, "answer");
        written_together_.insert(name);
      }
    } else if (metric == "privleak" || metric.starts_with("mia_")) {
      for (const std::string& set : questions_.attacked()) {
        need(set, "answer");
      }
    } else if (metric == "forget_Q_A_ROUGE") {
      written_together_.insert(forget);
    }
  }
  if (section_.retain_logs_path) {
    retained_ = read_retained(
        *section_.retain_logs_path,
        questions_.is_muse() ? std::nullopt
                             : std::optional(questions_(forget, "answer").questions.rows.size()));
  }
}

void UnlearningSuite::need(const std::string& name, const std::string& answer_key) {
  (void)questions_(name, answer_key);
  needed_[name].insert(answer_key);
}

/// Scores all answer fields of a set that the metrics need. They are scored together because they
/// share the questions.
const std::vector<AnswerScore>& UnlearningSuite::scores(
    const std::string& name, const std::string& answer_key) {
  const auto found = scores_.find(name + "/" + answer_key);
  if (found != scores_.end()) {
    return found->second;
  }
  std::set<std::string> keys = needed_[name];
  keys.insert(answer_key);
  std::vector<data::EncodedAnswer> rows;
  for (const std::string& key : keys) {
    const std::vector<data::EncodedAnswer>& of_key = questions_(name, key).encoded;
    rows.insert(rows.end(), of_key.begin(), of_key.end());
  }
  const std::vector<AnswerScore> scored = reader_->score(rows);
  auto next = scored.begin();
  for (const std::string& key : keys) {
    const std::ptrdiff_t count = std::ssize(questions_(name, key).encoded);
    scores_[name + "/" + key].assign(next, next + count);
    next += count;
  }
  return scores_.at(name + "/" + answer_key);
}

std::vector<std::vector<double>> UnlearningSuite::losses(
    const std::string& name, const std::string& answer_key) {
  const std::vector<AnswerScore>& all = scores(name, answer_key);
  std::vector<std::vector<double>> result;
  size_t next = 0;
  for (const data::Question& row : questions_(name, answer_key).questions.rows) {
    std::vector<double>& answers = result.emplace_back();
    for (size_t i = 0; i < row.answers.size(); ++i) {
      answers.push_back(all[next++].loss());
    }
  }
  return result;
}

std::vector<double> UnlearningSuite::losses_of_forgotten() {
  std::vector<double> result;
  for (const AnswerScore& score : scores(questions_.forgotten(), "answer")) {
    result.push_back(score.loss());
  }
  return result;
}

json UnlearningSuite::probabilities(const std::string& name, const std::string& answer_key) {
  const std::vector<std::vector<double>> all = losses(name, answer_key);
  const data::Questions& questions = questions_(name, answer_key).questions;
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

std::vector<AskedQuestion> UnlearningSuite::asked(const std::string& name) {
  const UnlearningQuestions::Dataset& set = questions_(name, "answer");
  const data::Encoder& encoder = questions_.encoder();
  const int64_t length = questions_.length();
  std::vector<AskedQuestion> all;
  for (const data::Question& row : set.questions.rows) {
    const std::string& answer = row.answers.front();
    AskedQuestion& each = all.emplace_back();
    if (name.starts_with("verbmem/")) {
      const data::EncodedAnswer& text = set.encoded[all.size() - 1];
      each = {data::encode_completion(row.question, "", "", encoder, 0).prompt, text.answer};
      continue;
    }
    const data::EncodedAnswer whole =
        data::encode_question(row.question, answer, set.form, encoder, length);
    each.prompt = data::encode_prompt(row.question, answer, set.form, encoder, length);
    each.whole = whole.prompt;
    each.whole.insert(each.whole.end(), whole.answer.begin(), whole.answer.end());
  }
  return all;
}

/// Generates answers. Sets with the same question format are generated together if their rows fit
/// in one call of AnswerReader::write().
const std::vector<WrittenAnswer>& UnlearningSuite::written(const std::string& name) {
  constexpr int64_t kKnown = 32, kVerbatim = 128;  // tokens per answer in MUSE
  const auto found = written_.find(name);
  if (found != written_.end()) {
    return found->second;
  }
  const bool is_text = name.starts_with("verbmem/"), is_known = name.starts_with("knowmem/");
  const int64_t most = std::min(
      section_.max_new_tokens,
      is_known  ? kKnown
      : is_text ? kVerbatim
                : section_.max_new_tokens);
  std::vector<AskedQuestion> rows = asked(name);
  std::vector<std::pair<std::string, std::ptrdiff_t>> sets{{name, std::ssize(rows)}};
  for (const std::string& other :
       questions_.is_muse() ? std::set<std::string>() : written_together_) {
    if (other == name || written_.contains(other)) {
      continue;
    }
    const std::vector<AskedQuestion> more = asked(other);
    if (std::ssize(rows) + std::ssize(more) <= reader_->rows_of_a_round(most)) {
      rows.insert(rows.end(), more.begin(), more.end());
      sets.emplace_back(other, std::ssize(more));
    }
  }
  const std::vector<WrittenAnswer> answers = reader_->write(
      rows,
      most,
      stop_tokens_,
      is_known ? std::vector<std::string>{"\n\n", "\nQuestion", "Question:"}
               : std::vector<std::string>{});
  auto next = answers.begin();
  for (const auto& [set, count] : sets) {
    written_[set].assign(next, next + count);
    next += count;
  }
  return written_.at(name);
}

json UnlearningSuite::rouges(const std::string& name) {
  json rows = json::object();
  std::vector<double> recalls;
  for (const WrittenAnswer& answer : written(name)) {
    const metrics::Rouge found = metrics::rouge(answer.ground_truth, answer.generation);
    const std::string row = std::to_string(recalls.size());
    recalls.push_back(questions_.is_muse() ? found.rougeL_f1 : found.rougeL_recall);
    rows[row] = {
        {"rouge1_recall", found.rouge1_recall},
        {"rougeL_f1", found.rougeL_f1},
        {"rougeL_recall", found.rougeL_recall},
        {"input", answer.input},
        {"ground_truth", answer.ground_truth},
        {"generation", answer.generation}};
  }
  return {{"agg_value", mean_of_numbers(recalls)}, {"value_by_index", rows}};
}

json UnlearningSuite::among_options(const std::string& name) {
  const auto correct = losses(name, "answer"), wrong = losses(name, kPerturbed);
  json rows = json::object();
  std::vector<double> each;
  for (size_t row = 0; row < correct.size(); ++row) {
    each.push_back(metrics::probability_among(correct[row].front(), wrong[row]));
    rows[std::to_string(row)] = {{"prob", each.back()}};
  }
  return {{"agg_value", mean_of_numbers(each)}, {"value_by_index", rows}};
}

json UnlearningSuite::truth_ratios(
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

json UnlearningSuite::of_tokens(const std::string& metric) {
  std::vector<double> each, counted;
  for (const AnswerScore& score : scores(questions_.forgotten(), "answer")) {
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

std::vector<double> UnlearningSuite::attack(const std::string& metric, const std::string& name) {
  const std::vector<data::EncodedAnswer>& rows = questions_(name, "answer").encoded;
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

void UnlearningSuite::read_reference(AnswerReader& reader) {
  for (const std::string& name : questions_.attacked()) {
    for (const AnswerScore& score : reader.score(questions_(name, "answer").encoded)) {
      reference_losses_[name].push_back(score.loss());
    }
  }
}

json UnlearningSuite::membership(const std::string& metric) {
  const std::array<std::string, 2> sets = questions_.attacked();
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

json UnlearningSuite::forget_quality(json& results) {
  measure("forget_truth_ratio", results);
  if (retained_.truth_ratios.empty()) {
    warnings_.push_back(
        "forget_quality is null: it requires the results of a model that never saw the forget set "
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

json UnlearningSuite::utility(json& results) {
  std::vector<double> values;
  for (const char* name : kUtility) {
    measure(name, results);
    values.push_back(results[name]["agg_value"]);
  }
  return {{"agg_value", number(metrics::harmonic_mean(values))}};
}

json UnlearningSuite::leakage(json& results) {
  constexpr double kWithoutReference = 0.5;
  measure("mia_min_k", results);
  if (retained_.min_k_auc < 0) {
    warnings_.push_back(
        "privleak uses a reference AUC of 0.5: unlearning.retain_logs_path contains no mia_min_k");
  }
  const json& auc = results["mia_min_k"]["agg_value"];
  const double reference = retained_.min_k_auc < 0 ? kWithoutReference : retained_.min_k_auc;
  return {
      {"agg_value",
       auc.is_number() ? number(metrics::privacy_leakage(auc, reference)) : json(nullptr)}};
}

json UnlearningSuite::make(const std::string& name, json& results) {
  const std::string forget = questions_.forgotten();
  const std::map<std::string, std::function<json()>> makers = {
      {"forget_quality", [&] { return forget_quality(results); }},
      {"model_utility", [&] { return utility(results); }},
      {"privleak", [&] { return leakage(results); }},
      {"exact_memorization", [&] { return of_tokens(name); }},
      {"extraction_strength", [&] { return of_tokens(name); }},
      {"forget_knowmem_ROUGE", [&] { return rouges(questions_.knowledge_of(name)); }},
      {"retain_knowmem_ROUGE", [&] { return rouges(questions_.knowledge_of(name)); }},
      {"forget_verbmem_ROUGE", [&] { return rouges(questions_.forgotten()); }},
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

void UnlearningSuite::measure(const std::string& name, json& results) {
  if (!results.contains(name)) {
    json made = make(name, results);
    results[name] = std::move(made);
  }
}

}  // namespace lockstep::train
