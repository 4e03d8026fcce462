// Lists the checkpoints of a run.
#include "monitor/checkpoints.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep::monitor {

std::vector<int64_t> checkpoints_of(const std::filesystem::path& folder) {
  constexpr std::string_view kPrefix = "checkpoint-";
  std::vector<int64_t> steps;
  std::error_code problem;
  for (std::filesystem::directory_iterator at(folder, problem);
       !problem && at != std::filesystem::directory_iterator();
       at.increment(problem)) {
    const std::string name = at->path().filename().string();
    int64_t step = 0;
    if (name.starts_with(kPrefix)) {
      const char* const end = name.data() + name.size();
      const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
      if (error == std::errc() && rest == end) {
        steps.push_back(step);
      }
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace lockstep::monitor
