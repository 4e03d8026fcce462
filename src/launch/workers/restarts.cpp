// Counts restarts within a time window.
#include "launch/workers/restarts.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/json_number.h"

namespace lockstep::launch {
namespace {

// A larger --max-restarts is effectively unlimited.
constexpr size_t kRemembered = 10000;

}  // namespace

std::string RestartLimit::text() const {
  return window.count() == 0 ? fmt::format("of {}", most)
                             : fmt::format("of at most {} in {} s", most, window.count());
}

bool Restarts::may_be_one_more(const RestartLimit& limit, Clock::time_point now) const {
  const auto counted = limit.window.count() == 0
                           ? count_
                           : std::count_if(last_.begin(), last_.end(), [&](Clock::time_point when) {
                               return now - when < limit.window;
                             });
  return counted < limit.most;
}

void Restarts::add(Clock::time_point now) {
  ++count_;
  last_.push_back(now);
  if (last_.size() > kRemembered) {
    last_.pop_front();
  }
}

nlohmann::json Restarts::to_json(Clock::time_point now) const {
  nlohmann::json ago = nlohmann::json::array();
  for (const Clock::time_point when : last_) {
    ago.push_back(std::chrono::duration_cast<std::chrono::seconds>(now - when).count());
  }
  return {{"count", count_}, {"seconds_ago", std::move(ago)}};
}

Restarts Restarts::from_json(const nlohmann::json& object, Clock::time_point now) {
  Restarts restarts;
  for (const nlohmann::json& ago : object.at("seconds_ago")) {
    restarts.add(now - std::chrono::seconds(std::clamp<int64_t>(integer_of(ago), 0, 1 << 30)));
  }
  restarts.count_ =
      static_cast<int>(std::clamp<int64_t>(integer_of(object.at("count")), 0, 1 << 30));
  return restarts;
}

}  // namespace lockstep::launch
