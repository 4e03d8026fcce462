// Selects frozen parameters by regular expression.
#include "model/freeze.h"

#include "base/error.h"
#include "base/format.h"
#include "base/name_pattern.h"
#include "model/description.h"

namespace lockstep::model {
namespace {

/// Returns the name of a block, "model.layers.7".
std::string block_name(const ModelConfig& model, int64_t block) {
  const std::string prefix = block_layers(model, block).front().prefix;
  const std::string number = fmt::format(".{}.", block);
  return prefix.substr(0, prefix.find(number) + number.size() - 1);
}

}  // namespace

std::set<std::string> frozen_parameters(
    const std::vector<std::string>& names, std::span<const std::string> patterns) {
  std::set<std::string> frozen;
  for (const std::string& text : patterns) {
    const NamePattern pattern("model.freeze", text);
    pattern.check_found_in(names);
    for (const std::string& name : names) {
      if (pattern.is_in(name)) {
        frozen.insert(name);
      }
    }
  }
  if (!names.empty() && frozen.size() == names.size()) {
    throw Error(
        ErrorKind::kConfig,
        "model.freeze leaves no trainable parameter",
        "freeze fewer parameters");
  }
  return frozen;
}

int64_t layers_through(const ModelConfig& model, const std::string& module_regex) {
  const std::regex expression = parse_regex("unlearning.module_regex", module_regex);
  std::vector<int64_t> matched;
  for (int64_t block = 0; block < model.layers; ++block) {
    if (std::regex_match(block_name(model, block), expression)) {
      matched.push_back(block);
    }
  }
  if (matched.size() != 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "unlearning.module_regex: '{}' matches {} of the model's layers",
            module_regex,
            matched.empty() ? "none" : fmt::format("{}", matched.size())),
        fmt::format(
            "use one that matches a single layer's full name; the layers are {} to {}",
            block_name(model, 0),
            block_name(model, model.layers - 1)));
  }
  return matched.front() + 1;
}

std::optional<std::string> freeze_all_but(
    const ModelConfig& model, std::span<const std::string> patterns) {
  std::set<std::string> others;
  for (const ParameterSpec& parameter : parameters_of(model)) {
    others.insert(parameter.name);
  }
  const std::set<std::string> all = others;
  for (const std::string& pattern : patterns) {
    const std::regex expression = parse_regex("unlearning.trainable_params_regex", pattern);
    bool is_found = false;
    for (const std::string& name : all) {
      if (std::regex_match(name, expression)) {
        others.erase(name);
        is_found = true;
      }
    }
    if (!is_found) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "unlearning.trainable_params_regex: '{}' matches no parameter up to the layer of "
              "unlearning.module_regex",
              pattern),
          fmt::format("use one that matches a full name, such as {}", *all.rbegin()));
    }
  }
  if (others.empty()) {
    return std::nullopt;
  }
  return fmt::format("^(?!(?:{})$)", fmt::join(patterns, "|"));
}

}  // namespace lockstep::model
