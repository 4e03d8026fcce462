// Per-parameter update rules.
#include "optim/update_rule.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::optim {
namespace update_rule_test {

const std::vector<ParameterTraits> kModel{
    {"embed.weight", true, false, 0},
    {"layers.0.q.weight", true, true, 1},
    {"layers.0.norm.weight", false, false, 1},
    {"layers.1.q.weight", true, true, 2},
    {"head.weight", true, false, 3}};

std::vector<UpdateRule> rules_of(const RuleOptions& options, bool has_muon = false) {
  const UpdateRules rules(options, has_muon, kModel);
  std::vector<UpdateRule> found;
  for (const ParameterTraits& parameter : kModel) {
    found.push_back(rules.rule_of(parameter));
  }
  return found;
}

TEST(UpdateRules, DecayWhatTheModelSaysByDefault) {
  const UpdateRule decays{}, stays{.weight_decay = 0};
  EXPECT_EQ(rules_of({}), (std::vector{decays, decays, stays, decays, decays}));
}

TEST(UpdateRules, AreOfTheFirstPatternThatIsFound) {
  RuleOptions options{.learning_rate = 0.1};
  options.learning_rates = {{"layers\\.1", 0.2}, {"\\.q\\.", 0.3}, {"embed", 0}};
  options.weight_decays = {{"norm", 0.5}, {"q", 0}};
  const auto rules = rules_of(options);
  EXPECT_DOUBLE_EQ(rules[0].learning_rate, 0);
  EXPECT_DOUBLE_EQ(rules[1].learning_rate, 3);
  EXPECT_DOUBLE_EQ(rules[2].learning_rate, 1);
  EXPECT_DOUBLE_EQ(rules[3].learning_rate, 2);
  EXPECT_DOUBLE_EQ(rules[4].learning_rate, 1);
  EXPECT_EQ(rules[0].weight_decay, std::nullopt);
  EXPECT_EQ(rules[1].weight_decay, 0);
  EXPECT_EQ(rules[2].weight_decay, 0.5);
}

TEST(UpdateRules, GiveHiddenMatricesToMuonAtARateOfTheirOwn) {
  RuleOptions options{.learning_rate = 0.1, .muon_learning_rate = 0.4};
  for (const UpdateRule& rule : rules_of(options)) {
    EXPECT_FALSE(rule.whole_matrix);
    EXPECT_EQ(rule.learning_rate, 1);
  }
  const auto with = rules_of(options, true);
  EXPECT_TRUE(with[1].whole_matrix && with[3].whole_matrix);
  EXPECT_FALSE(with[0].whole_matrix || with[2].whole_matrix || with[4].whole_matrix);
  EXPECT_DOUBLE_EQ(with[1].learning_rate, 4);
  EXPECT_DOUBLE_EQ(with[4].learning_rate, 1);
  options.learning_rates = {{"layers.0", 0.2}};
  EXPECT_DOUBLE_EQ(rules_of(options, true)[1].learning_rate, 2);
}

TEST(UpdateRules, LetTheRateFallFromTheHeadToTheEmbedding) {
  const auto rules = rules_of({.learning_rate = 0.1, .layer_decay = 0.5});
  EXPECT_DOUBLE_EQ(rules[4].learning_rate, 1);
  EXPECT_DOUBLE_EQ(rules[3].learning_rate, 0.5);
  EXPECT_DOUBLE_EQ(rules[2].learning_rate, 0.25);
  EXPECT_DOUBLE_EQ(rules[1].learning_rate, 0.25);
  EXPECT_DOUBLE_EQ(rules[0].learning_rate, 0.125);
}

TEST(UpdateRules, AreRefusedWithTheReason) {
  EXPECT_THROW(rules_of({.learning_rates = {{"layers(", 1}}}), Error);
  EXPECT_THROW(rules_of({.weight_decays = {{"layers.2", 1}}}), Error);
  EXPECT_THROW(rules_of({.learning_rate = 0, .learning_rates = {{"head", 1}}}), Error);
  EXPECT_THROW(rules_of({.learning_rate = 0, .muon_learning_rate = 1}, true), Error);
  EXPECT_NO_THROW(rules_of({.learning_rate = 0}, true));
}

}  // namespace update_rule_test
}  // namespace lockstep::optim
