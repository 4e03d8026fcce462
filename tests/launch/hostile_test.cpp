// Random and damaged input for parsers of files, command lines and messages: each must return an
// Error or a result. The seed is fixed, so failures are reproducible.
#include <algorithm>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "launch/agent/channel.h"
#include "launch/agent/coordinator.h"
#include "launch/agent/membership.h"
#include "launch/frontends/accelerate.h"
#include "launch/frontends/compat.h"
#include "launch/frontends/torchrun.h"
#include "launch/plan/cluster.h"
#include "launch/plan/hostfile.h"
#include "launch/plan/plan_parts.h"
#include "launch/plan/shell_words.h"
#include "launch/plan/std_spec.h"
#include "launch/workers/failure_report.h"
#include "launch/workers/watchdog.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace hostile_test {

// Damages valid inputs and recombines their parts.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  size_t below(size_t most) { return engine_() % most; }

  std::string damaged(std::string text) {
    for (size_t i = below(4); i > 0; --i) {
      const size_t at = text.empty() ? 0 : below(text.size());
      switch (below(5)) {
        case 0:
          text.insert(at, 1, static_cast<char>(engine_()));
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, text.substr(at, below(40)));
          break;
        case 3:
          text.insert(at, kWords[below(kWords.size())]);
          break;
        default:
          if (!text.empty()) {
            text[at] = static_cast<char>(engine_());
          }
      }
    }
    return text;
  }

  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  inline static const std::vector<std::string> kWords{"-1",     "0",    "99999999999999999999",
                                                      "1e308",  "nan",  ",",
                                                      ":",      "@",    "[",
                                                      "]",      "=",    "\"",
                                                      "'",      "\n",   "\\",
                                                      "{",      "}",    "null",
                                                      "--",     "-",    " ",
                                                      "slots=", "\x80", "%n",
                                                      "$("};
  std::mt19937 engine_;
};

template <class Body>
void expect_error_or_result(const std::string& input, Body body) {
  try {
    body(input);
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::kInternal) << input;
    EXPECT_FALSE(error.message().empty()) << input;
  }
}

constexpr int kRounds = 20'000;

TEST(Hostile, Hostfiles) {
  Random random(1);
  for (int i = 0; i < kRounds; ++i) {
    expect_error_or_result(
        random.damaged("n1 slots=2\n# all\nn2\tslots=4 max_slots=8\n"),
        [](const auto& text) { parse_hostfile(text, "hosts"); });
    expect_error_or_result(random.damaged("n1:0,1@n2"), [](const auto& text) {
      filter_hosts({{"n1", {0, 1}}, {"n2", {0}}}, text, "");
    });
    expect_error_or_result(random.damaged("n[08-10,3],m2"), [](const auto& text) {
      EXPECT_LE(expand_hosts(text).size(), 65536U);
    });
    expect_error_or_result(
        random.damaged("eyJ3b3JrZXItMCI6WzAsMV19"), [](const auto& text) { decode_world(text); });
  }
}

TEST(Hostile, CommandLines) {
  Random random(2);
  const std::vector<std::string> words{
      "--nnodes",
      "1:2",
      "--nproc-per-node=2",
      "--rdzv-conf",
      "join_timeout=3,is_host=1",
      "--rdzv-endpoint=[::1]:29400",
      "--rdzv-backend=c10d",
      "--tee",
      "0:3,1:1",
      "--max-restarts=1",
      "--local-ranks-filter=0,1",
      "--signals-to-handle",
      "SIGTERM,SIGINT",
      "--num_gpus=2",
      "--include",
      "localhost:0",
      "--num_processes",
      "--fsdp_version=2",
      "-m",
      "-t3",
      "train.py"};
  for (int i = 0; i < kRounds / 4; ++i) {
    std::vector<std::string> arguments;
    for (size_t count = 1 + random.below(6); count > 0; --count) {
      arguments.push_back(random.damaged(random.one_of(words)));
    }
    expect_error_or_result(fmt::format("{}", fmt::join(arguments, " ")), [&](const auto&) {
      read_launch(arguments, {{"HOME", "/nonexistent"}, {"PYTHON_EXEC", "py"}});
    });
  }
}

TEST(Hostile, SmallParts) {
  Random random(3);
  for (int i = 0; i < kRounds; ++i) {
    expect_error_or_result(
        random.damaged("0:1,12:3"), [](const auto& text) { StdSpec::parse(text, "tee"); });
    expect_error_or_result(random.damaged("host:29400"), [](const auto& text) {
      EXPECT_LT(parse_endpoint(text).port, 65536);
    });
    expect_error_or_result(
        random.damaged("a 'b c' \"d\" \\e"), [](const auto& text) { shell_split(text); });
    expect_error_or_result(random.damaged("A=1\nB=x y\n"), [](const auto& text) {
      parse_environment_file(text, "env");
    });
    parse_timer_request(random.damaged(
        R"({"version": 1, "pid": 12, "scope_id": "s", "expiration_time": 1.5, "signal": 9})"));
    expect_error_or_result(random.damaged("4(x2)"), [&](const auto& text) {
      find_cluster(
          {{"SLURM_PROCID", random.damaged("1")},
           {"SLURM_NTASKS", random.damaged("2")},
           {"SLURM_STEP_ID", "0"},
           {"SLURM_STEP_TASKS_PER_NODE", text},
           {"SLURM_JOB_NODELIST", random.damaged("n[1-2]")}});
    });
  }
}

TEST(Hostile, ErrorFilesAndReports) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "error.json";
  const std::string good =
      R"({"message": {"message": "RuntimeError: text", "extraInfo": {"py_callstack": "a\nb",)"
      R"( "timestamp": "1718000000", "step": 3, "hint": "x"}}})";
  Failure failure;
  failure.message = "text";
  failure.last_lines = {"one", "two"};
  const std::string travelling = to_json(failure);
  Random random(4);
  for (int i = 0; i < kRounds / 100; ++i) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << random.damaged(good);
    read_error_file(path);
    copy_error_file(path, folder.path() / "copy.json", 1);
    if (const auto read = failure_from_json(random.damaged(travelling))) {
      EXPECT_FALSE(report("x", {*read}).empty());
    }
  }
}

TEST(Hostile, NodesThatIntroduceThemselves) {
  NodeInfo node;
  node.host = "n1";
  node.address = "10.0.0.1";
  node.probe_port = 4;
  const std::string good = to_json(node).dump();
  Random random(5);
  for (int i = 0; i < kRounds; ++i) {
    expect_error_or_result(random.damaged(good), [](const auto& text) {
      const auto object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!object.is_discarded()) {
        EXPECT_LE(node_from_json(object).workers, 65536);
      }
    });
  }
}

// Many peers send damaged greetings to the coordinator. A valid peer is accepted afterwards.
TEST(Hostile, MessagesToTheCoordinator) {
  LaunchPlan plan;
  plan.min_nodes = plan.max_nodes = 2;
  plan.run_id = "job";
  Socket listener = listen_on("127.0.0.1", 0);
  const int port = bound_port(listener);
  const Coordinator coordinator(plan, std::move(listener), "127.0.0.1");
  NodeInfo node;
  node.host = "n1";
  node.address = "127.0.0.1";
  node.probe_port = 4;
  const nlohmann::json join{
      {"join", "job"}, {"nonce", "n"}, {"proof", ""}, {"node", to_json(node)}};
  const std::vector<std::string> later{
      R"({"ready": 1})",
      R"({"checked": 0, "problems": []})",
      R"({"ended": 1, "exit_code": 1, "failures": ["{}"]})",
      R"({"beat": 1})"};
  const auto converse = [&](const std::vector<std::string>& messages) {
    const Connecting agent = connect_within("127.0.0.1", port, std::chrono::seconds(10));
    std::string text;
    for (const std::string& message : messages) {
      text += message + "\n";
    }
    ::send(agent.socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    std::string answer;
    pollfd poll_one{agent.socket.get(), POLLIN, 0};
    char buffer[4096];
    ssize_t size = 0;
    while (std::count(answer.begin(), answer.end(), '\n') < 2 && ::poll(&poll_one, 1, 10000) > 0 &&
           (size = ::recv(agent.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT)) != 0) {
      if (size < 0 && errno != EAGAIN) {
        break;
      }
      answer.append(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    }
    return answer;
  };
  Random random(6);
  for (int i = 0; i < 300; ++i) {
    // Two damaged bytes that always invalidate the greeting, so that the answer comes at once.
    std::string greeting = random.damaged(join.dump());
    greeting.insert(random.below(greeting.size() + 1), "}{");
    converse({greeting, random.damaged(random.one_of(later))});
  }
  EXPECT_NE(converse({join.dump()}).find("welcome"), std::string::npos);
}

}  // namespace hostile_test
}  // namespace lockstep::launch
