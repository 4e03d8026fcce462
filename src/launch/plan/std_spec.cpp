// Parses torchrun's selection of streams.
#include "launch/plan/std_spec.h"

#include <charconv>

#include "base/error.h"
#include "base/format.h"
#include "launch/plan/options.h"

namespace lockstep::launch {
namespace {

bool is_bits(const std::string& text) {
  return text.size() == 1 && text[0] >= '0' && text[0] <= '3';
}

}  // namespace

StdSpec StdSpec::parse(const std::string& text, const std::string& option) {
  StdSpec result;
  if (is_bits(text)) {
    result.all_ = text[0] - '0';
    return result;
  }
  bool good = !text.empty();
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.find(':');
    int rank = -1;
    const char* end = part.data() + std::min(colon, part.size());
    good = good && colon != std::string::npos && is_bits(part.substr(colon + 1)) &&
           std::from_chars(part.data(), end, rank).ptr == end && rank >= 0;
    if (good) {
      result.some_[rank] = part[colon + 1] - '0';
    }
  }
  if (!good) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--{} {}: invalid selection of streams", option, text),
        "use 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for all workers, or a list by local rank "
        "such as 0:1,12:3");
  }
  return result;
}

Streams StdSpec::of(int local_rank) const {
  const auto found = some_.find(local_rank);
  const int bits = found != some_.end() ? found->second : all_;
  return {(bits & 1) != 0, (bits & 2) != 0};
}

}  // namespace lockstep::launch
