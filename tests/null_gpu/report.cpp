// Counters, call sites and the report file of the null GPU.
#include "null_gpu/report.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace null_gpu {
namespace {

struct Report {
  std::mutex mutex;
  std::map<std::string, int64_t> counts, highest;
  std::unordered_map<const char*, int64_t> kernels, moved;
  std::map<std::pair<std::string, Site>, int64_t> waits;
  std::vector<std::string> refused;
};
// Never destroyed, because threads of libtorch still count when the process ends.
Report& report() {
  static Report* const report = new Report;
  return *report;
}

std::string demangled(const char* name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
    }
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + '"';
}

/// Returns the load address of the program.
uintptr_t program_base() {
  static const uintptr_t base = [] {
    void* const main = ::dlsym(::dlopen(nullptr, RTLD_LAZY), "main");
    Dl_info info;
    if (main != nullptr && ::dladdr(main, &info) != 0) {
      return reinterpret_cast<uintptr_t>(info.dli_fbase);
    }
    std::FILE* const maps =
        std::fopen("/proc/self/maps", "r");  // the first mapping is the program's
    unsigned long begin = 0;
    if (maps != nullptr) {
      if (std::fscanf(maps, "%lx", &begin) != 1) {
        begin = 0;
      }
      std::fclose(maps);
    }
    return static_cast<uintptr_t>(begin);
  }();
  return base;
}

template <class Map, class Tell>
std::string object(const Map& map, Tell tell) {
  std::string text = "{";
  for (const auto& [key, value] : map) {
    text += (text.size() > 1 ? ", " : "") + quoted(tell(key)) + ": " + std::to_string(value);
  }
  return text + "}";
}

}  // namespace

std::string setting(const char* name, const std::string& otherwise) {
  const char* const text = std::getenv((std::string("NULL_GPU_") + name).c_str());
  return text == nullptr ? otherwise : text;
}

int64_t number_setting(const char* name, int64_t otherwise) {
  return std::atoll(setting(name, std::to_string(otherwise)).c_str());
}

const std::string& folder() {
  // Never destroyed, because the report is written when the process ends.
  static const std::string* const folder = [] {
    const auto* const path = new std::string(setting("FOLDER", "/tmp/null_gpu"));
    ::mkdir(path->c_str(), 0777);
    return path;
  }();
  return *folder;
}

void count(const char* name, int64_t amount) {
  const std::scoped_lock lock(report().mutex);
  report().counts[name] += amount;
}

void highest(const char* name, int64_t value) {
  const std::scoped_lock lock(report().mutex);
  int64_t& most = report().highest[name];
  most = std::max(most, value);
}

void count_kernel(const char* name) {
  const std::scoped_lock lock(report().mutex);
  ++report().kernels[name];
}

void count_moved(const char* what, int64_t bytes) {
  const std::scoped_lock lock(report().mutex);
  report().moved[what] += bytes;
}

Site site() {
  void* frames[48];
  const int count = ::backtrace(frames, 48);
  Site result;
  for (int i = 2; i < count; ++i) {
    result.push_back(reinterpret_cast<uintptr_t>(frames[i]));
  }
  return result;
}

std::string told(const Site& site) {
  std::string text;
  for (const uintptr_t address : site) {
    Dl_info info;
    if (::dladdr(reinterpret_cast<void*>(address), &info) == 0) {
      continue;
    }
    const char* const slash = std::strrchr(info.dli_fname, '/');
    const std::string file = slash == nullptr ? info.dli_fname : slash + 1;
    char offset[32];
    std::snprintf(
        offset, sizeof offset, "+%#lx", address - reinterpret_cast<uintptr_t>(info.dli_fbase));
    text += (text.empty() ? "" : " < ") +
            (info.dli_sname == nullptr ? file + offset : demangled(info.dli_sname).substr(0, 120));
  }
  return text;
}

Site within_program(const Site& site) {
  Site result;
  for (const uintptr_t address : site) {
    Dl_info info;
    if (::dladdr(reinterpret_cast<void*>(address), &info) != 0 &&
        reinterpret_cast<uintptr_t>(info.dli_fbase) == program_base()) {
      result.push_back(address - program_base());
    }
  }
  return result;
}

std::string told_within_program(const Site& site) {
  char program[4096] = "";
  if (::readlink("/proc/self/exe", program, sizeof program - 1) < 0) {
    return "";
  }
  std::string command = "LD_PRELOAD= addr2line -Cfe '" + std::string(program) + "'";
  for (const uintptr_t address : site) {
    char text[32];
    std::snprintf(text, sizeof text, " %#lx", address - 1);
    command += text;
  }
  std::string result;
  std::FILE* const pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  char line[4096];
  for (int i = 0; pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr; ++i) {
    if (i % 2 == 0) {
      line[std::strcspn(line, "\n")] = '\0';
      result += "\n    " + std::string(line).substr(0, 160);
    }
  }
  if (pipe != nullptr) {
    ::pclose(pipe);
  }
  return result;
}

void host_waited(const char* how) {
  const Site from = site();
  const std::scoped_lock lock(report().mutex);
  ++report().waits[{how, from}];
}

void refused(const std::string& what) {
  std::fprintf(stderr, "null GPU: refused: %s, by %s\n", what.c_str(), told(site()).c_str());
  const std::scoped_lock lock(report().mutex);
  report().refused.push_back(what);
}

void broken(const std::string& what, const std::string& more) {
  std::fprintf(
      stderr,
      "null GPU: a rule is broken: %s\n  called from%s\n  %s\n%s\n",
      what.c_str(),
      told_within_program(within_program(site())).c_str(),
      told(site()).c_str(),
      more.c_str());
  refused(what);
  write_report();
  ::syscall(SYS_exit_group, 86);
  std::abort();
}

void write_report() {
  static std::atomic<bool> is_written = false;
  Report& seen = report();
  const std::scoped_lock lock(seen.mutex);
  if (seen.counts.empty() || is_written.exchange(true)) {
    return;  // a process without a device, such as the launcher
  }
  const auto same = [](const std::string& text) { return text; };
  std::map<std::string, int64_t> kernels, moved;
  for (const auto& [name, times] : seen.kernels) {
    kernels[demangled(name)] += times;
  }
  for (const auto& [name, bytes] : seen.moved) {
    moved[demangled(name)] += bytes;
  }
  std::map<std::string, int64_t> waits;
  for (const auto& [wait, times] : seen.waits) {
    waits[wait.first + ": " + told(wait.second)] += times;
  }
  std::string refusals;
  for (const std::string& text : seen.refused) {
    refusals += (refusals.empty() ? "" : ", ") + quoted(text);
  }
  const char* const rank = std::getenv("RANK");
  const std::string name = rank == nullptr ? "0" : rank;
  const std::string path = folder() + "/report-" + name + ".json";
  if (std::FILE* const file = std::fopen(path.c_str(), "w"); file != nullptr) {
    std::fprintf(
        file,
        "{\"counts\": %s,\n\"highest\": %s,\n\"kernels\": %s,\n\"moved\": %s,\n\"waits\": "
        "%s,\n\"refused\": "
        "[%s]}\n",
        object(seen.counts, same).c_str(),
        object(seen.highest, same).c_str(),
        object(kernels, same).c_str(),
        object(moved, same).c_str(),
        object(waits, same).c_str(),
        refusals.c_str());
    std::fclose(file);
  }
}

}  // namespace null_gpu

namespace {
struct AtEnd {
  ~AtEnd() { null_gpu::write_report(); }
} at_end;
}  // namespace

// Target of the functions that stubs.py generates.
extern "C" void null_gpu_unknown(const char* name) {
  null_gpu::broken(std::string("not implemented in the null GPU: ") + name);
}

// Writes the report also for processes that exit without destructors.
extern "C" void _exit(int code) {
  null_gpu::write_report();
  ::syscall(SYS_exit_group, code);
  __builtin_unreachable();
}
extern "C" void _Exit(int code) {
  _exit(code);
}
