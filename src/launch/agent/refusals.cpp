// Rate limit for log lines about refused agents.
#include "launch/agent/refusals.h"

#include "base/format.h"

namespace lockstep::launch {

std::string Refusals::add(
    const std::string& address, const std::string& why, Clock::time_point now) {
  std::erase_if(logged_, [&](const auto& entry) {
    return now - entry.second.last >= (entry.second.unlogged == 0 ? kPause : 2 * kPause);
  });
  const bool is_known = logged_.contains(address);
  const std::string key = is_known || logged_.size() < kMostAddresses ? address : "other addresses";
  const auto [found, is_new] = logged_.try_emplace(key, Logged{now});
  Logged& logged = found->second;
  if (!is_new && now - logged.last < kPause) {
    ++logged.unlogged;
    return "";
  }
  const std::string more =
      logged.unlogged == 0 ? "" : fmt::format(" ({} more since the last line)", logged.unlogged);
  logged = {now};
  return fmt::format("refused an agent at {}: {}{}", key, why, more);
}

}  // namespace lockstep::launch
