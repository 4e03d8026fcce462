// Runs this test program again as workers and supervisors.
#include "launch/helpers.h"

#include <chrono>
#include <map>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "launch/system/descendants.h"
#include "launch/workers/supervisor.h"
#include "launch/workers/worker_environment.h"

namespace lockstep::launch::testing {
namespace {

std::map<std::string, Part>& parts() {
  static std::map<std::string, Part> all;
  return all;
}

bool read_some(int descriptor, std::string& text) {
  char buffer[65536];
  const ssize_t size = ::read(descriptor, buffer, sizeof buffer);
  if (size > 0) {
    text.append(buffer, static_cast<size_t>(size));
  }
  return size != 0;
}

const RegisterPart supervisor("supervise", [](int argc, char** argv) {
  SupervisorOptions options;
  options.workers = std::stoi(argv[0]);
  options.argv.assign(argv + 1, argv + argc);
  options.signal_grace = std::chrono::milliseconds(1500);
  return supervise(options);
});

}  // namespace

RegisterPart::RegisterPart(const std::string& name, Part body) {
  parts()[name] = std::move(body);
}

Ran run(
    const std::vector<std::string>& argv,
    const std::vector<std::string>& environment,
    const std::string& marker,
    const std::function<void(pid_t)>& during) {
  ProcessSpec spec;
  spec.argv = argv;
  Environment whole = current_environment();
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    whole[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  spec.environment = flatten(whole);
  const auto begin = std::chrono::steady_clock::now();
  Process process = Process::start(spec);
  Ran ran;
  bool waiting = static_cast<bool>(during), output_open = true, error_open = true;
  while (!process.status()) {
    pollfd polls[3] = {
        {output_open ? process.output() : -1, POLLIN, 0},
        {error_open ? process.error_output() : -1, POLLIN, 0},
        {process.pid_descriptor(), POLLIN, 0}};
    ::poll(polls, 3, 1000);
    if (polls[0].revents != 0) {
      output_open = read_some(process.output(), ran.output);
    }
    if (polls[1].revents != 0) {
      error_open = read_some(process.error_output(), ran.error_output);
    }
    if (waiting && (ran.output + ran.error_output).find(marker) != std::string::npos) {
      waiting = false;
      during(process.pid());
    }
  }
  ran.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ran.status = *process.status();
  const auto read_rest = [](int descriptor, std::string& text) {
    pollfd poll_one{descriptor, POLLIN, 0};
    while (::poll(&poll_one, 1, 0) > 0 && read_some(descriptor, text)) {
    }
  };
  read_rest(process.output(), ran.output);
  read_rest(process.error_output(), ran.error_output);
  return ran;
}

std::vector<std::string> part(const std::string& name, const std::vector<std::string>& more) {
  std::vector<std::string> argv{"/proc/self/exe", "--part", name};
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  argv[0] = std::string(path, static_cast<size_t>(size));
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

Ran supervise_script(
    int workers,
    const std::string& script,
    const std::string& marker,
    const std::function<void(pid_t)>& during) {
  return run(part("supervise", {std::to_string(workers), "sh", "-c", script}), {}, marker, during);
}

int processes_left(const std::string& needle) {
  return static_cast<int>(processes_with_environment(needle).size());
}

std::string unique_mark() {
  static int count = 0;
  return "LOCKSTEP_TEST_MARK=" + std::to_string(::getpid()) + "." +
         std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()) + "." +
         std::to_string(count++);
}

int play_as(const std::string& name, int argc, char** argv) {
  return parts().at(name)(argc, argv);
}

int play(int argc, char** argv) {
  return parts().at(argv[2])(argc - 3, argv + 3);
}

}  // namespace lockstep::launch::testing

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--part") {
    return lockstep::launch::testing::play(argc, argv);
  }
  if (argc > 1 && std::string(argv[1]) == "launch") {  // started as an agent by a transport
    return lockstep::launch::testing::play_as("launch", argc - 2, argv + 2);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
