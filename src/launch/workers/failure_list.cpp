#include "launch/workers/failure_list.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep::launch {
namespace {

bool is_ours(const Failure& failure, ErrorKind kind) {
  return failure.status.signal == 0 && failure.status.code == exit_code(kind) &&
         failure.message.starts_with("lockstep::Error: ");
}

/// It says who failed, and not why: there is room for it where there is for all.
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

bool Repetition::expected(const std::vector<Failure>& failures) {
  if (failures.empty()) {
    return false;
  }
  const Failure& root = failures[root_cause(failures)];
  diverged_ = is_ours(root, ErrorKind::kNumeric) ? diverged_ + 1 : 0;
  return is_ours(root, ErrorKind::kConfig) || diverged_ > 1;
}

}  // namespace lockstep::launch
