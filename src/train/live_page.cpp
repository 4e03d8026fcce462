// Serves the monitor page of a running job.
#include "train/live_page.h"

namespace lockstep::train {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

}  // namespace

LivePage::LivePage(const std::string& output_dir)
    : page_({output_dir}, kLoopback, watch::draw_token()),
      server_(
          kLoopback,
          0,
          [this](const watch::HttpRequest& request) { return page_.answer(request); }),
      thread_([this] { server_.run(); }) {}

LivePage::~LivePage() {
  server_.stop();
  thread_.join();
}

std::string LivePage::address() const {
  return watch::page_address(kLoopback, server_.port(), page_.token());
}

}  // namespace lockstep::train
