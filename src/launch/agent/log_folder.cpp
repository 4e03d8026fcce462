// Creates torchrun's tree of log files.
#include "launch/agent/log_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/temporary_folder.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

fs::path make_unique(std::string pattern) {
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot create the log folder {}: {}", pattern, std::strerror(errno)),
        "set --log-dir to a writable folder, or to /dev/null for no log files");
  }
  return pattern;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

std::string fill_prefix(const std::string& text, const LogFolder::Place& place) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  std::string result = text;
  replace_all(result, "${role_name}", place.role);
  replace_all(result, "${local_rank}", std::to_string(place.local_rank));
  replace_all(result, "${rank}", std::to_string(place.rank));
  replace_all(result, "${hostname}", host);
  return result;
}

LogFolder::LogFolder(const LogPlan& plan, const std::string& run_id) : plan_(plan) {
  fs::path base = plan.folder;
  if (base.empty()) {
    temporary_ = make_unique((temporary_folder() / "torchelastic_XXXXXX").string());
    base = temporary_;
  } else {
    base = fs::absolute(base);  // workers may change their directory
    create_folders(base, ErrorKind::kEnvironment);
  }
  // The user chooses the run id, so replace characters that are unsafe in a file name.
  std::string name = run_id;
  std::replace_if(
      name.begin(),
      name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.'; },
      '_');
  path_ = make_unique((base / (name + "_XXXXXX")).string());
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &parts);
  started_ = text;
}

LogFolder::~LogFolder() {
  if (!temporary_.empty() && !keep_) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
}

std::shared_ptr<LogFile> LogFolder::shared_file(const fs::path& path) {
  std::shared_ptr<LogFile> file = shared_[path].lock();
  if (file == nullptr) {
    file = std::make_shared<LogFile>(path);
    shared_[path] = file;
  }
  return file;
}

LogFolder::Routes LogFolder::routes(const Place& place, Console& output, Console& error_output) {
  const fs::path attempt = path_ / fmt::format("attempt_{}", place.attempt);
  const fs::path folder = attempt / std::to_string(place.local_rank);
  create_folders(folder, ErrorKind::kEnvironment);
  const Streams to_file = plan_.redirects.of(place.local_rank);
  const Streams to_both = plan_.tee.of(place.local_rank);
  const bool shown =
      plan_.shown_ranks.empty() ||
      std::find(plan_.shown_ranks.begin(), plan_.shown_ranks.end(), place.local_rank) !=
          plan_.shown_ranks.end();
  const std::string prefix =
      fill_prefix(plan_.prefix.empty() ? "[${role_name}${local_rank}]:" : plan_.prefix, place);
  const bool keeps_files = !plan_.no_files;
  const auto route = [&](bool redirect, bool tee, Console& console, const char* file) {
    StreamRoute result;
    if ((tee || !redirect) && shown) {
      result.console = &console;
    }
    result.whole_lines = tee || place.workers > 1;
    if (tee || redirect) {
      result.prefix = tee ? prefix : "";
      if (keeps_files) {
        result.file = std::make_shared<LogFile>(folder / file);
        keep_ = true;
      }
    }
    return result;
  };
  Routes routes;
  routes.output = route(to_file.output, to_both.output, output, "stdout.log");
  routes.error_output =
      route(to_file.error_output, to_both.error_output, error_output, "stderr.log");
  if (keeps_files && to_both.output && !plan_.output_needles.empty()) {
    routes.output.needles = plan_.output_needles;
    routes.output.filtered = shared_file(attempt / "filtered_stdout.log");
  }
  if (keeps_files && to_both.error_output && !plan_.error_needles.empty()) {
    routes.error_output.needles = plan_.error_needles;
    routes.error_output.filtered = shared_file(attempt / "filtered_stderr.log");
  }
  if (!plan_.rank_log_folder.empty()) {
    const auto file =
        shared_file(plan_.rank_log_folder / fmt::format("{}_rank{}.log", started_, place.rank));
    for (StreamRoute* stream : {&routes.output, &routes.error_output}) {
      stream->console = nullptr;
      stream->file = file;
    }
  }
  routes.error_file = folder / "error.json";
  return routes;
}

}  // namespace lockstep::launch
