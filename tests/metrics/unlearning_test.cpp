// Tests of unlearning metrics, ROUGE and the Porter stemmer.
#include "metrics/unlearning.h"

#include <cmath>
#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "metrics/porter.h"
#include "metrics/ranking.h"
#include "metrics/rouge.h"
#include "shared_data.h"

namespace lockstep::metrics {
namespace unlearning_test {

std::filesystem::path golden() {
  return shared_data() / "unlearning" / "golden";
}

/// Creates a std::span<const bool> from a braced list.
struct Bools {
  std::unique_ptr<bool[]> values;
  size_t size;
  Bools(std::initializer_list<bool> list) : values(new bool[list.size()]), size(list.size()) {
    std::copy(list.begin(), list.end(), values.get());
  }
  operator std::span<const bool>() const { return {values.get(), size}; }  // NOLINT
};

TEST(Porter, StemsByItsRules) {
  for (const auto& [word, stem] :
       {std::pair{"caresses", "caress"},
        {"ponies", "poni"},
        {"ties", "tie"},
        {"agreed", "agre"},
        {"feed", "feed"},
        {"hopping", "hop"},
        {"falling", "fall"},
        {"filing", "file"},
        {"sky", "sky"},
        {"enjoy", "enjoy"},
        {"happy", "happi"},
        {"relational", "relat"},
        {"rationalli", "ration"},
        {"archaeologi", "archaeolog"},
        {"adoption", "adopt"},
        {"controlling", "control"},
        {"is", "is"},
        {"1933", "1933"}}) {
    EXPECT_EQ(porter_stem(word), stem) << word;
  }
}

TEST(Porter, GivesTheStemsOfNltk) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/porter_stems.tsv");
  std::ifstream file(golden() / "porter_stems.tsv");
  int words = 0;
  for (std::string line; std::getline(file, line); ++words) {
    const size_t tab = line.find('\t');
    EXPECT_EQ(porter_stem(line.substr(0, tab)), line.substr(tab + 1)) << line;
  }
  EXPECT_GT(words, 3000);
}

TEST(Rouge, CountsWordsAndTheirOrder) {
  EXPECT_EQ(
      rouge_words("The Authors' 2nd book\xE2\x80\x94"
                  "K\xC4\xB0ng!"),
      (std::vector<std::string>{"the", "author", "2nd", "book", "ki", "ng"}));
  const Rouge some = rouge("a b c d", "d a x c");
  EXPECT_DOUBLE_EQ(some.rouge1_recall, 0.75);
  EXPECT_DOUBLE_EQ(some.rougeL_recall, 0.5);
  EXPECT_DOUBLE_EQ(some.rougeL_f1, 0.5);
  EXPECT_DOUBLE_EQ(rouge("a a b", "a").rouge1_recall, 1.0 / 3);
  EXPECT_EQ(rouge("", "a").rougeL_f1, 0);
  EXPECT_EQ(rouge("a", "b").rougeL_f1, 0);
}

TEST(TruthRatio, ComparesGeometricMeans) {
  const std::vector<double> wrong{1.0, 3.0};
  EXPECT_NEAR(truth_ratio(1.5, wrong), std::exp(-2.0) / std::exp(-1.5), 1e-8);
  EXPECT_NEAR(truth_share(2.0, wrong), 0.5, 1e-8);
  EXPECT_NEAR(probability_among(0.0, wrong), 1 / (1 + std::exp(-1.0) + std::exp(-3.0)), 1e-8);
  const std::vector<double> ratios{0.5, 2.0, 1.0};
  EXPECT_NEAR(closer_to_one_is_better(ratios), 2.0 / 3, 1e-8);
  EXPECT_NEAR(truth_is_better(ratios), 0.5 / 3, 1e-8);
}

TEST(KolmogorovSmirnov, IsExact) {
  EXPECT_EQ(kolmogorov_smirnov({1, 2, 2}, {2, 1, 2}).p_value, 1);
  // Three and two values that do not overlap: two of ten orders are as extreme.
  EXPECT_NEAR(kolmogorov_smirnov({1, 2, 3}, {4, 5}).p_value, 0.2, 1e-15);
  EXPECT_TRUE(std::isnan(kolmogorov_smirnov({}, {1}).p_value));
  for (const auto& [n, p] :
       {std::pair{40, 1.86034e-23}, {200, 1.942643e-119}, {400, 1.06359e-239}}) {
    std::vector<double> a, b;
    for (int i = 0; i < n; ++i) {
      a.push_back(i);
      b.push_back(i + n);
    }
    EXPECT_NEAR(kolmogorov_smirnov(a, b).p_value / p, 1, 1e-6) << n;
  }
}

TEST(KolmogorovSmirnov, IsThatOfScipy) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/token_metrics.json");
  const nlohmann::json golden_file = read_json(golden() / "token_metrics.json");
  EXPECT_EQ(golden_file["ks_2samp"].size(), 4U);
  for (const nlohmann::json& each : golden_file["ks_2samp"]) {
    const KolmogorovSmirnov found = kolmogorov_smirnov(each["a"], each["b"]);
    EXPECT_NEAR(found.statistic, each["statistic"].get<double>(), 1e-7);
    EXPECT_NEAR(
        found.p_value / each["pvalue"].get<double>(), 1, 1e-6);  // the reference has seven digits
  }
}

TEST(Tokens, ThatAreTheLikeliest) {
  using enum LeastExtraction;
  EXPECT_EQ(exact_memorization(Bools{true, false, false, true}), 0.5);
  EXPECT_TRUE(std::isnan(exact_memorization(Bools{})));
  EXPECT_EQ(extraction_strength(Bools{false, true, false, true}, kZero), 0.25);
  EXPECT_EQ(extraction_strength(Bools{true, true, false}, kZero), 0);
  EXPECT_NEAR(extraction_strength(Bools{true, true, false}, kOneToken), 1.0 / 3, 1e-15);
  EXPECT_EQ(extraction_strength(Bools{false}, kOneToken), 1);
  EXPECT_EQ(extraction_strength(Bools{}, kOneToken), 0);
  EXPECT_EQ(min_k({-1, -4, -2, -3}, 0.5), 3.5);
  EXPECT_EQ(min_k({-7}, 0.4), 7);
  EXPECT_EQ(min_k({}, 0.4), 0);
  EXPECT_EQ(harmonic_mean(std::vector{1.0, 0.5}), 2.0 / 3);
  EXPECT_EQ(harmonic_mean(std::vector{1.0, 0.0}), 0);
  EXPECT_NEAR(privacy_leakage(0.75, 0.5), -50, 1e-6);
}

TEST(Tokens, ScoreAsInOpenUnlearning) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/token_metrics.json");
  const nlohmann::json golden_file = read_json(golden() / "token_metrics.json");
  const nlohmann::json& tokens = golden_file["token_metrics"];
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_NEAR(
        probability(tokens["probability"][row]["avg_loss"]),
        tokens["probability"][row]["prob"].get<double>(),
        1e-6);
    EXPECT_NEAR(
        min_k(tokens["token_logprobs"][row], 0.4), tokens["min_k_0.4"][row].get<double>(), 1e-6);
  }
  for (const auto& [text, length] : golden_file["zlib_lengths"].items()) {
    EXPECT_EQ(compressed_length(text), length.get<size_t>()) << text;
  }
  const nlohmann::json& auc = golden_file["auc"];
  Ranking ranking;
  for (const auto& [key, is_holdout] :
       {std::pair{"forget_scores", false}, {"holdout_scores", true}}) {
    for (const nlohmann::json& score : auc[key]) {
      ranking.scores.push_back(score);
      ranking.truth.push_back(is_holdout);
    }
  }
  EXPECT_NEAR(roc_auc(ranking), auc["auc"].get<double>(), 1e-12);
}

TEST(Tofu, GivesTheScoresOfItsModels) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/tofu_llama2_scores.json");
  const nlohmann::json scores = read_json(golden() / "tofu_llama2_scores.json");
  std::vector<double> probabilities, recalls, ratios;
  for (const char* set :
       {"forget01_by_retain99_model",
        "world_facts_by_full_model",
        "forget10_first300_by_retain90_model"}) {
    for (const nlohmann::json& item : scores[set]["items"]) {
      const Rouge found =
          rouge(item["ground_truth"].get<std::string>(), item["generation"].get<std::string>());
      EXPECT_NEAR(found.rouge1_recall, item["rouge1_recall"].get<double>(), 1e-9) << item;
      EXPECT_NEAR(found.rougeL_recall, item["rougeL_recall"].get<double>(), 1e-9) << item;
      EXPECT_NEAR(found.rougeL_f1, item["rougeL_f1"].get<double>(), 1e-9) << item;
      if (set == std::string("forget01_by_retain99_model")) {
        probabilities.push_back(probability(item["answer_avg_loss"]));
        recalls.push_back(found.rougeL_recall);
        const std::vector<double> wrong = item["perturbed_avg_loss"];
        ratios.push_back(truth_ratio(item["paraphrased_avg_loss"], wrong));
      }
    }
  }
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) {
      sum += value;
    }
    return sum / static_cast<double>(values.size());
  };
  const nlohmann::json& forget01 = scores["forget01_by_retain99_model"];
  EXPECT_NEAR(mean(probabilities), forget01["probability"].get<double>(), 1e-9);
  EXPECT_NEAR(mean(recalls), forget01["rougeL_recall"].get<double>(), 1e-9);
  EXPECT_NEAR(
      closer_to_one_is_better(ratios),
      forget01["truth_ratio_closer_to_1_better"].get<double>(),
      1e-8);
  const nlohmann::json& quality = scores["forget_quality_full_against_retain90"];
  const KolmogorovSmirnov ks =
      kolmogorov_smirnov(quality["truth_ratios_full"], quality["truth_ratios_retain90"]);
  EXPECT_NEAR(ks.statistic, quality["statistic"].get<double>(), 1e-9);
  EXPECT_NEAR(ks.p_value / quality["pvalue"].get<double>(), 1, 1e-8);
  for (const auto& [name, parts] : scores["model_utility"].items()) {
    std::vector<double> values;
    for (const auto& [key, value] : parts.items()) {
      if (key != "model_utility") {
        values.push_back(value);
      }
    }
    EXPECT_NEAR(harmonic_mean(values), parts["model_utility"].get<double>(), 1e-9) << name;
  }
}

}  // namespace unlearning_test
}  // namespace lockstep::metrics
