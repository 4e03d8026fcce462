// Resolves OmegaConf interpolations.
#include "config/hydra/interpolate.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "base/redact.h"
#include "config/core/schema.h"
#include "config/core/yaml.h"
#include "config/hydra/layers.h"
#include "config/hydra/override.h"

namespace lockstep::config {
namespace {

constexpr size_t kMostText = 1 << 20;

[[noreturn]] void fail_to_interpolate(
    const Value& value, const std::string& what, std::string remedy = "") {
  throw Error(
      ErrorKind::kConfig, fmt::format("{} ({})", what, describe(value.origin)), std::move(remedy));
}

/// Returns the index after the } that matches the ${ at `begin`; npos if there is none.
size_t end_of(std::string_view text, size_t begin) {
  size_t open = 0;
  char quote = '\0';
  for (size_t i = begin; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == '\\') {
      ++i;
    } else if (quote != '\0') {
      quote = letter == quote ? '\0' : quote;
    } else if (open > 0 && (letter == '\'' || letter == '"')) {
      quote = letter;
    } else if (letter == '$' && i + 1 < text.size() && text[i + 1] == '{') {
      ++open;
      ++i;
    } else if (letter == '{' && open > 0) {
      ++open;
    } else if (letter == '}' && open > 0) {
      --open;
      if (open == 0) {
        return i + 1;
      }
    }
  }
  return std::string_view::npos;
}

/// Splits at commas outside quotes, brackets and braces.
std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (quote != '\0') {
      quote = letter == quote ? '\0' : quote;
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
    } else if (letter == '{' || letter == '[') {
      ++depth;
    } else if (letter == '}' || letter == ']') {
      --depth;
    } else if (letter == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    parts.back() += letter;
  }
  return parts;
}

std::string_view strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::string joined_text(const Value& part) {
  return part.is_null() ? "None" : part.text;
}

}  // namespace

struct Interpolator::Call {
  std::string name;
  std::vector<std::string> arguments;
  std::string text;
};

Interpolator::Interpolator(const Value& root, Environment environment, RunFacts facts)
    : root_(root),
      environment_(std::move(environment)),
      facts_(std::move(facts)) {}

void Interpolator::spend(size_t bytes, const Value& value) {
  bytes_ += bytes;
  ++nodes_;
  if (bytes_ > kMostText || nodes_ > 4 * kMaximumNodes) {
    fail_to_interpolate(value, "interpolations make the configuration too large");
  }
}

Value Interpolator::resolve(const Value& value, const Path& path) {
  open_.clear();  // a previous call may have thrown
  depth_ = 0;
  return walk(value, path);
}

Value Interpolator::walk(const Value& value, const Path& path) {
  spend(0, value);
  if (value.is_scalar()) {
    return scalar(value, path);
  }
  Value result = value;
  Path inner = path;
  inner.emplace_back();
  for (size_t i = 0; i < result.items.size(); ++i) {
    inner.back() = std::to_string(i);
    result.items[i] = walk(value.items[i], inner);
  }
  for (size_t i = 0; i < result.entries.size(); ++i) {
    inner.back() = value.entries[i].name;
    result.entries[i].value = walk(value.entries[i].value, inner);
  }
  return result;
}

Value Interpolator::scalar(const Value& value, const Path& path) {
  const std::string& text = value.text;
  if (text.find("${") == std::string::npos) {
    return value;
  }
  Value result = Value::scalar("", true, value.origin);
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find("${", at);
    if (open == std::string::npos) {
      result.text += text.substr(at);
      break;
    }
    size_t slash = open;
    while (slash > at && text[slash - 1] == '\\') {
      --slash;
    }
    result.text += text.substr(at, slash - at);
    result.text.append((open - slash) / 2, '\\');
    if ((open - slash) % 2 == 1) {
      result.text += "${";
      at = open + 2;
      continue;
    }
    const size_t end = end_of(text, open);
    if (end == std::string::npos) {
      fail_to_interpolate(value, fmt::format("'{}' has no closing }}", short_text(value)));
    }
    Value part = evaluate(text.substr(open + 2, end - open - 3), value, path);
    if (open == 0 && end == text.size()) {
      return part;
    }
    if (!part.is_scalar() && !part.is_null()) {
      fail_to_interpolate(
          value, fmt::format("'{}' inserts a list or a map into a string", short_text(value)));
    }
    result.text += joined_text(part);
    result.origin.secret |= part.origin.secret;
    spend(result.text.size(), value);
    at = end;
  }
  return result;
}

Value Interpolator::evaluate(const std::string& inner, const Value& value, const Path& path) {
  if (++depth_ > kMaximumDepth) {
    fail_to_interpolate(
        value, fmt::format("interpolations are nested deeper than {}", kMaximumDepth));
  }
  const std::string_view text = strip(inner);
  const size_t colon = text.find(':');
  const size_t nested = text.find("${");
  Value result;
  if (colon != std::string_view::npos && colon < nested) {
    const Call made{
        std::string(strip(text.substr(0, colon))),
        split_arguments(text.substr(colon + 1)),
        fmt::format("${{{}}}", text)};
    result = call(made, value, path);
  } else {
    Value reference = Value::scalar(std::string(text), false, value.origin);
    result = node(joined_text(scalar(reference, path)), value, path);
  }
  --depth_;
  const bool secret = result.origin.secret;
  if (result.origin.source != Origin::Source::kEnvironment) {
    result.origin = value.origin;
  }
  result.origin.secret = secret || value.origin.secret;
  return result;
}

Value Interpolator::node(const std::string& reference, const Value& value, const Path& path) {
  const size_t dots = std::min(reference.find_first_not_of('.'), reference.size());
  Path target;
  if (dots > 0) {
    if (dots > path.size()) {
      fail_to_interpolate(value, fmt::format("${{{}}} goes above the root", reference));
    }
    target.assign(path.begin(), path.end() - static_cast<ptrdiff_t>(dots));
  }
  if (dots < reference.size()) {
    for (std::string& name : split_path(std::string_view(reference).substr(dots))) {
      target.push_back(std::move(name));
    }
  }
  // Retries with the current name because older names were renamed: ${trainer.args.seed} is
  // ${training.seed}.
  if (root_.find(target) == nullptr && !target.empty() &&
      (target[0] == "trainer" || is_section(target[0]))) {
    referenced_.insert(target[0]);
    target = canonical_path(std::move(target));
  }
  return follow(target, reference, value);
}

Value Interpolator::follow(const Path& target, const std::string& reference, const Value& value) {
  if (!target.empty()) {
    referenced_.insert(target.front());
  }
  // A prefix of the path may itself be an interpolation: ${model.width} if model is
  // ${presets.small}.
  const Value* found = &root_;
  Value held;
  for (size_t i = 0; i < target.size() && found != nullptr; ++i) {
    const Path so_far(target.begin(), target.begin() + static_cast<ptrdiff_t>(i));
    if (found->is_scalar() && found->text.find("${") != std::string::npos) {
      held = scalar(*found, so_far);
      found = &held;
    }
    const Value* next = found->find(Path{target[i]});
    if (next != nullptr && found == &held) {
      Value kept = *next;
      held = std::move(kept);
      next = &held;
    }
    found = next;
  }
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const Entry& entry : root_.entries) {
      names.push_back(entry.name);
    }
    fail_to_interpolate(
        value,
        fmt::format("${{{}}}: unknown key", reference),
        fmt::format(
            "write the full key from the root, or .key for a sibling.{}",
            target.empty() ? "" : did_you_mean(target.front(), names)));
  }
  if (found->is_scalar() && !found->quoted && found->text == "???") {
    fail_to_interpolate(value, fmt::format("${{{}}}: a value is required", reference));
  }
  if (std::find(open_.begin(), open_.end(), target) != open_.end()) {
    fail_to_interpolate(value, fmt::format("${{{}}} refers to itself", reference));
  }
  open_.push_back(target);
  Value copy = *found;
  Value result = walk(copy, target);
  open_.pop_back();
  spend(result.text.size(), value);
  return result;
}

Value Interpolator::argument(const std::string& text, const Value& value, const Path& path) {
  const std::string_view stripped = strip(text);
  const bool quoted = stripped.size() >= 2 && (stripped[0] == '\'' || stripped[0] == '"') &&
                      stripped.back() == stripped[0];
  Value inner = Value::scalar(
      std::string(quoted ? stripped.substr(1, stripped.size() - 2) : stripped),
      quoted,
      value.origin);
  if (!quoted && scalar_type(inner) == ScalarType::kNull) {
    return Value::null(value.origin);
  }
  if (!quoted && inner.text.find("${") == std::string::npos &&
      (inner.text.starts_with('[') || inner.text.starts_with('{'))) {
    return parse_override_value(inner.text, inner.text);
  }
  return scalar(inner, path);
}

Value Interpolator::variable(const Call& call, const Value& value, const Path& path) {
  if (call.arguments.size() > 2) {
    fail_to_interpolate(value, call.text + " requires a variable and accepts a default");
  }
  const std::string name = joined_text(argument(call.arguments[0], value, path));
  if (const auto text = environment_(name)) {
    Value result = Value::scalar(
        *text,
        true,
        {.source = Origin::Source::kEnvironment,
         .place = fmt::format("{} ({})", name, value.origin.place),
         .order = value.origin.order,
         .secret = is_secret_name(name)});
    spend(text->size(), value);
    return result;
  }
  if (call.arguments.size() == 2) {
    return argument(call.arguments[1], value, path);
  }
  fail_to_interpolate(
      value,
      fmt::format("{}: environment variable {} is not set", call.text, name),
      fmt::format("export {0}=..., or give a default: ${{oc.env:{0},default}}", name));
}

Value Interpolator::fact(const std::string& name, const Value& value) {
  if (const auto known = facts_.hydra.find(name); known != facts_.hydra.end()) {
    return Value::scalar(known->second, true, value.origin);
  }
  Path target{"hydra"};
  for (std::string& part : split_path(name)) {
    target.push_back(std::move(part));
  }
  if (root_.find(target) != nullptr) {
    return follow(target, "hydra:" + name, value);
  }
  std::vector<std::string> names;
  for (const auto& [known, text] : facts_.hydra) {
    names.push_back(known);
  }
  fail_to_interpolate(
      value,
      fmt::format("${{hydra:{}}} is not supported", name),
      fmt::format("these are: {}", fmt::join(names, ", ")));
}

Value Interpolator::call(const Call& call, const Value& value, const Path& path) {
  const auto first = [&] { return argument(call.arguments[0], value, path); };
  if (call.name == "oc.env") {
    return variable(call, value, path);
  }
  if (call.name == "oc.decode") {
    const Value text = first();
    return text.is_scalar() ? parse_override_value(text.text, call.text) : text;
  }
  if (call.name == "oc.select") {
    const Path target = split_path(joined_text(first()));
    if (root_.find(target) != nullptr || call.arguments.size() < 2) {
      return follow(target, call.text, value);
    }
    referenced_.insert(target.front());
    return argument(call.arguments[1], value, path);
  }
  if (call.name == "oc.deprecated") {
    return node(joined_text(first()), value, path);
  }
  if (call.name == "oc.dict.keys" || call.name == "oc.dict.values") {
    const Value map = node(joined_text(first()), value, path);
    Value list = Value::list(value.origin);
    for (const Entry& entry : map.entries) {
      list.items.push_back(
          call.name == "oc.dict.keys" ? Value::scalar(entry.name, true, value.origin)
                                      : entry.value);
    }
    return list;
  }
  if (call.name == "hydra") {
    return fact(joined_text(first()), value);
  }
  if (call.name == "now") {
    const std::string form = call.text.substr(6, call.text.size() - 7);  // without "${now:" and "}"
    const time_t seconds = facts_.now;
    std::tm parts{};
    ::localtime_r(&seconds, &parts);
    char buffer[256];
    const size_t size = std::strftime(buffer, sizeof buffer, form.c_str(), &parts);
    return Value::scalar(std::string(buffer, size), true, value.origin);
  }
  fail_to_interpolate(
      value,
      fmt::format("{}: unknown resolver '{}'", call.text, call.name),
      "supported: oc.env, oc.decode, oc.select, oc.dict.keys, oc.dict.values, oc.deprecated, "
      "hydra, now; write ${ in a string as \\${");
}

}  // namespace lockstep::config
