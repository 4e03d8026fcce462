// Reads stacks with elfutils' libdwfl, which is widely installed. It is loaded on demand, so that
// no program depends on it.
#include "launch/workers/stacks.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>
#include <elfutils/libdwfl.h>

#include "base/format.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

constexpr int kMostFrames = 64;      // per thread
constexpr size_t kMostThreads = 64;  // per process
constexpr size_t kLongestName = 120;

/// Functions of libdw.so.1 to load.
#define LOCKSTEP_DWFL_FUNCTIONS(DO) \
  DO(dwfl_begin)                    \
  DO(dwfl_end)                      \
  DO(dwfl_errmsg)                   \
  DO(dwfl_report_end)               \
  DO(dwfl_linux_proc_report)        \
  DO(dwfl_linux_proc_attach)        \
  DO(dwfl_linux_proc_find_elf)      \
  DO(dwfl_standard_find_debuginfo)  \
  DO(dwfl_getthread_frames)         \
  DO(dwfl_frame_pc)                 \
  DO(dwfl_addrmodule)               \
  DO(dwfl_module_addrname)          \
  DO(dwfl_module_info)              \
  DO(dwfl_module_getsrc)            \
  DO(dwfl_lineinfo)

struct DwflLibrary {
#define LOCKSTEP_DWFL(name) decltype(&::name) name = nullptr;
  LOCKSTEP_DWFL_FUNCTIONS(LOCKSTEP_DWFL)
#undef LOCKSTEP_DWFL
};

/// Returns null if the library is not installed.
const DwflLibrary* dwfl_library() {
  static const std::unique_ptr<const DwflLibrary> library = [] {
    std::unique_ptr<DwflLibrary> found;
    void* const handle = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return std::unique_ptr<const DwflLibrary>();
    }
    found = std::make_unique<DwflLibrary>();
    bool whole = true;
    const auto take = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
      whole = whole && function != nullptr;
    };
#define LOCKSTEP_DWFL(name) take(found->name, #name);
    LOCKSTEP_DWFL_FUNCTIONS(LOCKSTEP_DWFL)
#undef LOCKSTEP_DWFL
    return whole ? std::unique_ptr<const DwflLibrary>(std::move(found)) : nullptr;
  }();
  return library.get();
}

std::string line_of(const std::filesystem::path& path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  return text;
}

/// Returns the state letter in a `stat` file of /proc. It follows the process name, which may
/// contain any character.
char letter_of(const std::string& stat) {
  const size_t end = stat.rfind(") ");
  return end == std::string::npos || end + 2 >= stat.size() ? '\0' : stat[end + 2];
}

std::vector<pid_t> threads_of(pid_t process) {
  std::vector<pid_t> threads;
  std::error_code none;
  const std::filesystem::path folder = fmt::format("/proc/{}/task", process);
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    threads.push_back(std::atoi(entry.path().filename().c_str()));
  }
  std::sort(threads.begin(), threads.end());
  return threads;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  std::string text = status == 0 ? plain.get() : name;
  if (text.size() > kLongestName) {
    text.resize(kLongestName);
    text += "...";
  }
  return text;
}

std::string file_name(const char* path) {
  return std::filesystem::path(path != nullptr ? path : "?").filename().string();
}

/// Session of libdwfl for one process.
class Session {
 public:
  Session(const DwflLibrary& library, pid_t process) : library_(library) {
    callbacks_.find_elf = library.dwfl_linux_proc_find_elf;
    callbacks_.find_debuginfo = library.dwfl_standard_find_debuginfo;
    callbacks_.debuginfo_path = &no_downloads_;
    dwfl_ = library.dwfl_begin(&callbacks_);
    if (dwfl_ == nullptr || library.dwfl_linux_proc_report(dwfl_, process) != 0 ||
        library.dwfl_report_end(dwfl_, nullptr, nullptr) != 0) {
      problem_ = "cannot read its files: " + message();
    } else if (const int failed =
                   library.dwfl_linux_proc_attach(dwfl_, process, /*assume_ptrace_stopped=*/false);
               failed != 0) {
      problem_ = "cannot attach to it: " +
                 (failed > 0 ? std::generic_category().message(failed) : message());
    }
  }
  ~Session() {
    if (dwfl_ != nullptr) {
      library_.dwfl_end(dwfl_);
    }
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::string& problem() const { return problem_; }

  std::string frames(pid_t thread) {
    Walk walk{this, {}, 0};
    const int ended = library_.dwfl_getthread_frames(dwfl_, thread, add_frame, &walk);
    // Report the reason only if no frame could be read. If the outermost frames have no unwind
    // rules, the stack is shown up to them.
    if (walk.count == 0 && ended != 0) {
      return fmt::format("    no frames: {}\n", message());
    }
    return walk.text;
  }

 private:
  struct Walk {
    Session* session;
    std::string text;
    int count;
  };

  std::string message() const {
    const char* const text = library_.dwfl_errmsg(-1);
    return text != nullptr ? text : "no reason given";
  }

  static int add_frame(Dwfl_Frame* frame, void* walk_of) {
    auto& walk = *static_cast<Walk*>(walk_of);
    const DwflLibrary& library = walk.session->library_;
    Dwarf_Addr address = 0;
    bool is_activation = false;
    if (!library.dwfl_frame_pc(frame, &address, &is_activation) || walk.count == kMostFrames) {
      return DWARF_CB_ABORT;
    }
    // Subtract 1, because a return address may be the first address of the next function.
    const Dwarf_Addr at = is_activation ? address : address - 1;
    walk.text += fmt::format("    #{} ", walk.count++);
    Dwfl_Module* const module = library.dwfl_addrmodule(walk.session->dwfl_, at);
    const char* const name = module != nullptr ? library.dwfl_module_addrname(module, at) : nullptr;
    walk.text += name != nullptr ? demangled(name) : fmt::format("{:#x}", address);
    if (module != nullptr) {
      const char* const file = library.dwfl_module_info(
          module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
      walk.text += fmt::format(" ({})", file_name(file));
      if (Dwfl_Line* const line = library.dwfl_module_getsrc(module, at)) {
        int number = 0;
        const char* const source =
            library.dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
        walk.text += fmt::format(" {}:{}", file_name(source), number);
      }
    }
    walk.text += '\n';
    return DWARF_CB_OK;
  }

  const DwflLibrary& library_;
  Dwfl_Callbacks callbacks_{};
  char nowhere_ = '\0';
  char* no_downloads_ = &nowhere_;  // use only debugging information next to the files
  Dwfl* dwfl_ = nullptr;
  std::string problem_;
};

}  // namespace

char state_of(pid_t process) {
  return letter_of(line_of(fmt::format("/proc/{}/stat", process)));
}

std::string state_text(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in uninterruptible sleep";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "dead";
    default:
      return "gone";
  }
}

std::string stacks_of(pid_t process) {
  const std::vector<pid_t> threads = threads_of(process);
  if (threads.empty()) {
    return fmt::format("  process {} does not exist\n", process);
  }
  std::map<pid_t, char> states;
  for (const pid_t thread : threads) {
    states[thread] = letter_of(line_of(fmt::format("/proc/{}/task/{}/stat", process, thread)));
  }
  const DwflLibrary* const library = dwfl_library();
  std::unique_ptr<Session> session;
  std::string text;
  if (library == nullptr) {
    text = "  no frames: libdw.so.1 is not installed (Debian: apt install libdw1)\n";
  } else if (states[process] != 'D') {
    session = std::make_unique<Session>(*library, process);
    if (!session->problem().empty()) {
      text = fmt::format("  no frames: {}\n", session->problem());
      session.reset();
    }
  }
  // The first thread of the process comes first. Threads with equal frames are listed together.
  std::vector<std::pair<std::string, std::string>> places;  // thread names, and frames
  for (size_t i = 0; i < std::min(threads.size(), kMostThreads); ++i) {
    const pid_t thread = threads[i];
    const std::string task = fmt::format("/proc/{}/task/{}", process, thread);
    const std::string head = fmt::format(
        "{} ({}, {})", thread, printable(line_of(task + "/comm")), state_text(states[thread]));
    const std::string frames =
        states[thread] == 'D' ? fmt::format("    in the kernel: {}\n", line_of(task + "/wchan"))
        : session != nullptr  ? session->frames(thread)
                              : "";
    const auto same = std::find_if(
        places.begin(), places.end(), [&](const auto& place) { return place.second == frames; });
    if (same == places.end() || i == 0) {
      places.emplace_back(head, frames);
    } else {
      same->first += ", " + head;
    }
  }
  for (const auto& [whose, frames] : places) {
    text += fmt::format("  thread {}:\n{}", whose, frames);
  }
  if (threads.size() > kMostThreads) {
    text += fmt::format("  ... and {} more threads\n", threads.size() - kMostThreads);
  }
  return text;
}

}  // namespace lockstep::launch
