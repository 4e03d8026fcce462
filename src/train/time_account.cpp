// Accounts for the time of a run by activity.
#include "train/time_account.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/format.h"

namespace lockstep::train {
namespace {

constexpr std::array<const char*, TimeAccount::kUses> kNames{
    "steps", "starting", "saving", "evaluating", "comparing replicas"};
constexpr std::array<const char*, TimeAccount::kUses> kKeys{
    "steps_s", "starting_s", "saving_s", "evaluating_s", "comparing_s"};

}  // namespace

double TimeAccount::goodput(double all) const {
  return all > 0 ? std::clamp(seconds_.front() / all, 0.0, 1.0) : 0;
}

std::string TimeAccount::text(double all) const {
  std::string text = fmt::format(
      "goodput {:.1f}%: of {:.3g} s, {:.3g} s went into steps ({:.3g} s of them waiting for data, "
      "{:.3g} s for other ranks)",
      100 * goodput(all),
      all,
      seconds_.front(),
      for_data_,
      for_ranks_);
  for (size_t use = 1; use < seconds_.size(); ++use) {
    if (seconds_[use] > 0) {
      text += fmt::format(", {:.3g} s into {}", seconds_[use], kNames[use]);
    }
  }
  const double rest = all - std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
  return text + fmt::format(", {:.3g} s into the rest", std::max(0.0, rest));
}

nlohmann::ordered_json TimeAccount::json(double all) const {
  nlohmann::ordered_json json{{"goodput", goodput(all)}, {"all_s", all}};
  for (size_t use = 0; use < seconds_.size(); ++use) {
    json[kKeys[use]] = seconds_[use];
  }
  json["data_wait_s"] = for_data_;
  json["communication_wait_s"] = for_ranks_;
  return json;
}

double process_seconds() {
  // Field 22 of stat is the start time in ticks since boot. The process name, an earlier field, may
  // contain any character.
  std::string text;
  std::getline(std::ifstream("/proc/self/stat"), text);
  std::istringstream fields(text.substr(std::min(text.rfind(") ") + 2, text.size())));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    fields >> field;
  }
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const double began =
      std::strtod(field.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - began;
}

}  // namespace lockstep::train
