// Parses head kind and labels from config.json.
#include "model/head.h"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "model/config_reader.h"

namespace lockstep::model {
namespace {

constexpr std::string_view kClassifier = "ForSequenceClassification";
constexpr int64_t kMostClasses = 1 << 20;
constexpr std::string_view kProblems[] = {
    "single_label_classification", "multi_label_classification", "regression"};

ProblemType parse_problem(ConfigReader& reader, int64_t outputs) {
  const std::string name = reader.text("problem_type", "");
  const auto problem = name.empty()
                           ? (outputs == 1 ? ProblemType::kRegression : ProblemType::kSingleLabel)
                           : parse_problem_type(name).value_or(ProblemType::kSingleLabel);
  if (!name.empty() && !parse_problem_type(name)) {
    reader.problem(
        "problem_type", fmt::format("\"{}\" is not one of {}", name, fmt::join(kProblems, ", ")));
  } else if (problem == ProblemType::kSingleLabel && outputs == 1) {
    reader.problem("problem_type", "needs at least two labels");
  }
  return problem;
}

}  // namespace

std::string_view name_of(ProblemType problem) {
  return kProblems[static_cast<size_t>(problem)];
}

std::optional<ProblemType> parse_problem_type(std::string_view name) {
  const auto* const found = std::find(std::begin(kProblems), std::end(kProblems), name);
  return found == std::end(kProblems)
             ? std::nullopt
             : std::optional(static_cast<ProblemType>(found - std::begin(kProblems)));
}

HeadSpec states_head(int64_t layers) {
  HeadSpec head{HeadSpec::Kind::kStates};
  head.layers = layers;
  return head;
}

HeadSpec reward_head() {
  return {HeadSpec::Kind::kClassifier, {"LABEL_0"}, ProblemType::kRegression};
}

HeadSpec parse_head(ConfigReader& reader) {
  HeadSpec head;
  const auto architectures = reader.texts("architectures", 16);
  if (architectures.empty() || !architectures.front().ends_with(kClassifier)) {
    return head;
  }
  head.kind = HeadSpec::Kind::kClassifier;
  const bool is_named = reader.has("id2label") && reader.object().at("id2label").is_object();
  const auto count = is_named ? std::ssize(reader.object().at("id2label"))
                              : reader.integer("num_labels", 2, 1, kMostClasses);
  for (int64_t id = 0; id < count; ++id) {
    std::string name = fmt::format("LABEL_{}", id);
    if (is_named) {
      const auto& names = reader.object().at("id2label");
      const auto found = names.find(std::to_string(id));
      if (found == names.end() || !found->is_string()) {
        reader.problem("id2label", fmt::format("has no name for class {} of {}", id, count));
        return head;
      }
      name = found->get<std::string>();
    }
    head.labels.push_back(std::move(name));
  }
  head.problem = parse_problem(reader, count);
  return head;
}

std::string architecture_with(const HeadSpec& head, std::string_view of_language) {
  if (!head.classifies()) {
    return std::string(of_language);
  }
  for (const std::string_view ending :
       {"LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForConditionalGeneration"}) {
    if (of_language.ends_with(ending)) {
      of_language.remove_suffix(ending.size());
    }
  }
  return fmt::format("{}{}", of_language, kClassifier);
}

}  // namespace lockstep::model
