// Writes the error files of workers.
#include "launch/record.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rank_status.h"
#include "base/redact.h"
#include "launch/system/step_file.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;
constexpr int64_t kNoStep = -1;
std::atomic<int64_t> recorded_step{kNoStep};

struct Described {
  std::string type, message, whole, hint;
  int code = 1;
};

bool speaks_of_memory(const std::string& text) {
  return text.find("out of memory") != std::string::npos ||
         text.find("not enough memory") != std::string::npos;
}

Described describe_current() {
  try {
    throw;
  } catch (const Error& error) {
    return {
        "lockstep::Error", error.message(), error.what(), error.remedy(), exit_code(error.kind())};
  } catch (const std::bad_alloc& error) {
    const std::string text = "out of host memory";
    return {
        "std::bad_alloc",
        text,
        text,
        "lower the micro-batch, or use more ranks",
        exit_code(ErrorKind::kOutOfMemory)};
  } catch (const std::exception& error) {
    const std::string whole = redacted(error.what());
    const int code = speaks_of_memory(whole) ? exit_code(ErrorKind::kOutOfMemory) : 1;
    return {"std::exception", whole.substr(0, whole.find('\n')), whole, "", code};
  } catch (...) {
    return {"unknown", "an exception that is not derived from std::exception", "", "", 1};
  }
}

std::string environment_or(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

/// Writes the start of the step to the rank status file. If ranks are threads, only one rank
/// writes.
void tell_launcher(int64_t step) {
  static const std::string path = rank_status() != nullptr ? rank_status()->path().string() : "";
  static std::mutex mutex;
  static int64_t last = kNoStep;
  if (path.empty()) {
    return;
  }
  const std::scoped_lock lock(mutex);
  static StepWriter writer(path);
  if (step != last) {
    writer.begin(last = step);
  }
}

/// Writes the error file. Returns true if a launcher reads it.
bool write_error_file(const Described& described) {
  const std::string path = environment_or("TORCHELASTIC_ERROR_FILE", "");
  if (path.empty()) {
    return false;
  }
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  json extra{
      {"py_callstack", described.whole},
      {"cpp_callstack", described.whole},
      {"timestamp", std::to_string(now)},
      {"rank", environment_or("RANK", "0")},
      {"hostname", host},
      {"hint", described.hint}};
  const int64_t step = recorded_step;
  if (step != kNoStep) {
    extra["step"] = step;
  }
  const json whole{
      {"message",
       {{"message", described.type + ": " + described.message},
        {"errorCode", described.code},
        {"extraInfo", extra}}}};
  try {
    write_file_atomically(
        path, whole.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace));
    return true;
  } catch (const std::exception& error) {
    log_warning("cannot write the error file: {}", error.what());
  }
  return false;
}

}  // namespace

void set_recorded_step(int64_t step) {
  recorded_step = step;
  tell_launcher(step);
}

int record_current_exception() {
  const Described described = describe_current();
  const bool is_told = write_error_file(described);
  // All ranks find the same configuration error. The launcher prints it once.
  if (!is_told || described.code != exit_code(ErrorKind::kConfig)) {
    log_error("{}", described.whole.empty() ? described.message : described.whole);
  }
  return described.code;
}

int record(int argc, char** argv, const std::function<int(int, char**)>& body) {
  try {
    return body(argc, argv);
  } catch (...) {
    return record_current_exception();
  }
}

}  // namespace lockstep::launch
