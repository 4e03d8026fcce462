// Tables of answers: what becomes of each key of another program's configuration.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// What an answer writes to: settings of ours, problems, warnings.
struct AnswerTarget {
  Value& settings;
  Problems& problems;
  std::vector<std::string>& warnings;
  std::string prefix;  // of the key, for messages: "fsdp_config."

  void set(const std::string& key, const std::string& text, const Value& from) const;
  void copy(const std::string& key, const Value& from) const;
  void refuse(
      const std::string& name,
      const Value& value,
      const std::string& why,
      const std::string& remedy = "") const;
};

using Answer = std::function<void(const AnswerTarget&, const std::string& name, const Value&)>;
using Answers = std::map<std::string, Answer>;

bool is_on(const Value& value);
/// null or 1.
bool is_one(const Value& value);

/// Accepted; there is nothing to do.
Answer nothing();
/// Becomes the key `key`, as it is.
Answer copies(const std::string& key);
/// `text` for `key`, where the value is true.
Answer sets_if_true(const std::string& key, const std::string& text);
/// Accepted with a warning, unless it is null, no or false.
Answer warns(const std::string& why);
Answer refuses_true(const std::string& why);
Answer refuses_more_than_one(const std::string& why);

/// Answers every entry of a map (null: none); `prefix_of_names` may stand before a name. An unknown
/// one is a problem.
void answer_entries(
    const Value& map,
    const Answers& answers,
    const std::string& prefix_of_names,
    const AnswerTarget& target);

/// FSDP's settings, with or without "fsdp_" before their names.
const Answers& fsdp_answers();
/// FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, the hybrid ones or their numbers as parallel.zero_stage
/// and parallel.shard_ranks.
void answer_sharding_strategy(
    const AnswerTarget& target, const std::string& name, const Value& value);
/// parallelism_config's sizes, with `prefix_of_names` or without.
void answer_parallelism(
    const Value& map, const std::string& prefix_of_names, const AnswerTarget& target);

}  // namespace lockstep::config
