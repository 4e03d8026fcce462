// Serves the monitor page of a running job.
#include "train/live_page.h"

#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

namespace lockstep::train {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
/// Names that begin with a dot are not uploaded to object stores.
constexpr const char* kFileName = ".lockstep-page";

/// Replaces a file by one that only its owner can read.
void write_private(const std::filesystem::path& path, const std::string& text) {
  std::error_code missing;
  std::filesystem::remove(path, missing);
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  const bool is_written = descriptor >= 0 && ::write(descriptor, text.data(), text.size()) ==
                                                 static_cast<ssize_t>(text.size());
  const Error error = system_error(ErrorKind::kCheckpoint, "write", path);
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (!is_written) {
    throw error;
  }
}

}  // namespace

LivePage::LivePage(const std::string& output_dir)
    : file_(std::filesystem::path(output_dir) / kFileName),
      page_({output_dir}, kLoopback, watch::draw_token()),
      server_(kLoopback, 0, [this](const watch::HttpRequest& request) {
        return page_.answer(request);
      }) {
  write_private(file_, watch::page_address(kLoopback, server_.port(), page_.token()) + "\n");
  thread_ = std::thread([this] { server_.run(); });
}

LivePage::~LivePage() {
  server_.stop();
  thread_.join();
  std::error_code gone;
  std::filesystem::remove(file_, gone);
}

}  // namespace lockstep::train
