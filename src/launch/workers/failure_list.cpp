// Selects the failures to report and detects repeated ones.
#include "launch/workers/failure_list.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_number.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

bool is_ours(const Failure& failure, ErrorKind kind) {
  return failure.status.signal == 0 && failure.status.code == exit_code(kind) &&
         failure.message.starts_with("lockstep::Error: ");
}

constexpr size_t kLongestCause = 500;

/// Returns true if the failure only reports a lost peer. Such failures are omitted first.
bool tells_little(const Failure& failure) {
  return !failure.hangs && lost_a_peer(failure.status);
}

}  // namespace

void FailureList::add(Failure failure) {
  if (failures_.size() >= kMost) {
    ++others_;
    const auto lost = std::find_if(failures_.rbegin(), failures_.rend(), tells_little);
    if (tells_little(failure) || lost == failures_.rend()) {
      return;
    }
    failures_.erase(std::next(lost).base());
  }
  failures_.push_back(std::move(failure));
}

void FailureList::add_all(const std::vector<Failure>& failures) {
  for (const Failure& failure : failures) {
    add(failure);
  }
}

void FailureList::add_from(const nlohmann::json& message) {
  for (const nlohmann::json& entry : message.at("failures")) {
    if (auto failure = failure_from_json(entry.get<std::string>())) {
      add(std::move(*failure));
    }
  }
  constexpr int64_t kMostOthers = 1'000'000;
  others_ += std::clamp<int64_t>(message.value("others", int64_t{0}), 0, kMostOthers);
}

void FailureList::put_into(nlohmann::json& message) const {
  nlohmann::json list = nlohmann::json::array();
  for (const Failure& failure : failures_) {
    list.push_back(to_json(failure));
  }
  message["failures"] = std::move(list);
  message["others"] = others_;
}

bool Progress::in_vain(std::optional<int64_t> step, const std::string& why) {
  if (!step && !furthest_) {
    return false;
  }
  furthest_ = furthest_.value_or(-1);
  if (step.value_or(-1) > *furthest_) {
    furthest_ = step;
    in_vain_.clear();
    return false;
  }
  in_vain_.push_back(why.substr(0, kLongestCause));
  return in_vain_.size() >= kMost;
}

std::string Progress::told() const {
  return fmt::format(
      "{} rounds in a row made no progress:\n    {}",
      in_vain_.size(),
      fmt::join(in_vain_, "\n    "));
}

nlohmann::json Progress::to_json() const {
  return {
      {"furthest", furthest_ ? nlohmann::json(*furthest_) : nlohmann::json(nullptr)},
      {"in_vain", in_vain_}};
}

Progress Progress::from_json(const nlohmann::json& object) {
  Progress progress;
  if (!object.at("furthest").is_null()) {
    progress.furthest_ = integer_of(object.at("furthest"));
  }
  for (const nlohmann::json& why : object.at("in_vain")) {
    progress.in_vain_.push_back(printable(why.get<std::string>().substr(0, kLongestCause)));
  }
  return progress;
}

std::string cause_of(const std::vector<Failure>& failures, const std::string& otherwise) {
  if (failures.empty()) {
    return printable(otherwise);
  }
  const Failure& root = failures[root_cause(failures)];
  return printable(fmt::format("rank {} on {}: {}", root.rank, root.host, root.message));
}

bool Repetition::expected(const std::vector<Failure>& failures, std::optional<int64_t> step) {
  if (failures.empty()) {
    return false;
  }
  const Failure& root = failures[root_cause(failures)];
  const bool diverged = is_ours(root, ErrorKind::kNumeric);
  diverged_ = !diverged ? 0 : step > diverged_at_ ? 1 : diverged_ + 1;
  diverged_at_ = diverged ? std::max(diverged_at_, step) : diverged_at_;
  return is_ours(root, ErrorKind::kConfig) || diverged_ > 1;
}

}  // namespace lockstep::launch
