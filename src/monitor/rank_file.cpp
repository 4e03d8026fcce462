#include "monitor/rank_file.h"

#include <span>
#include <string>

#include "base/format.h"
#include "monitor/metrics.h"

namespace lockstep::monitor {
namespace {

/// With the digits that a picture can show.
std::string list_of(const std::vector<double>& values) {
  std::string text = "[";
  for (const double value : values) {
    text += fmt::format("{}{:.4g}", text.size() > 1 ? ", " : "", value);
  }
  return text + "]";
}

}  // namespace

RankFile::RankFile(const std::filesystem::path& folder, int64_t after)
    : file_(open_lines_after(folder / kRanksName, after)),
      end_(file_.size()) {}

void RankFile::log(const RankShares& shares) {
  const std::string line = fmt::format(
      "{{\"step\": {}, \"steps\": {}, \"step_s\": {}, \"data_wait_s\": {}, "
      "\"communication_wait_s\": {}, \"memory_bytes\": {}}}\n",
      shares.step,
      shares.steps,
      list_of(shares.step_s),
      list_of(shares.data_wait_s),
      list_of(shares.communication_wait_s),
      list_of(shares.memory_bytes));
  file_.write_at(end_, std::as_bytes(std::span(line)));
  end_ += line.size();
}

}  // namespace lockstep::monitor
