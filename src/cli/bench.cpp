// Entry point of `lockstep bench`.
#include "cli/bench.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/temporary_folder.h"
#include "cli/bench_sides.h"
#include "cli/rank_context.h"
#include "monitor/progress.h"
#include "start/parse.h"

namespace lockstep::cli {
namespace {

/// Processes of one side of a comparison.
struct Side {
  std::string name;
  int workers = 1;
  std::map<std::string, std::string> environment = {};
  std::string note = {};
};

struct Words {
  BenchOptions bench;
  std::string what;          // comparison: "zero" or "dp-vs-ddp"
  std::string side, result;  // set only in the processes of a side
};

nlohmann::json to_json(const std::vector<BenchFigures>& figures) {
  nlohmann::json rows = nlohmann::json::array();
  for (const BenchFigures& f : figures) {
    rows.push_back({f.name, f.step_seconds, f.state_bytes, f.last_loss});
  }
  return rows;
}

std::vector<BenchFigures> from_json(const nlohmann::json& rows) {
  std::vector<BenchFigures> figures;
  for (const nlohmann::json& row : rows) {
    figures.push_back({row.at(0), row.at(1), row.at(2), row.at(3)});
  }
  return figures;
}

/// Runs one side of a comparison in this process, which is either the only one or one of its ranks.
int run_side(const Words& words) {
  const auto tell = [&](const std::vector<BenchFigures>& figures) {
    write_file_atomically(words.result, to_json(figures).dump(), ErrorKind::kEnvironment);
    return 0;
  };
  if (words.side == "replicating") {
    return tell({run_replicating(words.bench)});
  }
  if (words.side == "threads") {
    return tell({run_threads(words.bench)});
  }
  RankOptions ranks;
  ranks.command = "bench";
  ranks.use_cpu = words.bench.use_cpu;
  ranks.ranks = 1;  // the processes have already been started
  return run_ranks(ranks, [&](train::RankContext& rank_context) {
    const std::vector<BenchFigures> figures =
        words.side == "stages" ? run_stages(words.bench, rank_context)
                               : std::vector{run_process(words.bench, rank_context)};
    return rank_context.is_first() ? tell(figures) : 0;
  });
}

/// Starts the processes of a side and returns its results.
std::vector<BenchFigures> measure(
    const Words& words, const Side& side, std::vector<std::string> arguments) {
  const std::filesystem::path result =
      temporary_folder() / fmt::format("lockstep-bench-{}-{}.json", ::getpid(), side.name);
  arguments.insert(arguments.end(), {"--side", side.name, "--result", result.string()});
  const int code = start_ranks("bench", arguments, side.workers, side.environment);
  if (code != 0) {
    throw Error(
        ErrorKind::kRun,
        fmt::format("`lockstep bench {}`: {} ended with {}", words.what, side.name, code));
  }
  std::vector<BenchFigures> figures = from_json(read_json(result));
  std::filesystem::remove(result);
  for (BenchFigures& f : figures) {
    f.name += side.note;
  }
  return figures;
}

void print(const Words& words, const std::vector<BenchFigures>& figures) {
  const BenchOptions& bench = words.bench;
  std::cout << fmt::format(
      "GPT-2 of {} layers, width {}, vocabulary {}, in {}; {} ranks, {} sequences of {} tokens "
      "each; medians of {} steps\n\n{:<44}{:>10}{:>12}{:>14}{:>14}{:>10}\n",
      bench.layers,
      bench.width,
      bench.vocabulary,
      bench.float32 ? "float32" : "bfloat16",
      bench.ranks,
      bench.rows,
      bench.length,
      bench.steps,
      "",
      "step",
      "tokens/s",
      "vs. first",
      "state per rank",
      "loss");
  const double tokens = static_cast<double>(bench.ranks * bench.rows * bench.length);
  for (const BenchFigures& f : figures) {
    std::cout << fmt::format(
        "{:<44}{:>7.1f} ms{:>12.0f}{:>+13.1f}%{:>14}{:>10.4f}\n",
        f.name,
        1e3 * f.step_seconds,
        tokens / f.step_seconds,
        100 * (f.step_seconds / figures.front().step_seconds - 1),
        f.state_bytes > 0 ? monitor::format_bytes(f.state_bytes) : "-",
        f.last_loss);
  }
}

void print_order(std::vector<BenchFigures> figures) {
  // Compare only the plans of ZeRO stages 2 and 3, which users select to save memory.
  std::erase_if(figures, [](const BenchFigures& f) {
    return f.name.find("stage 2") == std::string::npos &&
           f.name.find("stage 3") == std::string::npos;
  });
  std::stable_sort(figures.begin(), figures.end(), [](const auto& a, const auto& b) {
    return a.step_seconds < b.step_seconds;
  });
  std::string order;
  for (const BenchFigures& f : figures) {
    order += (order.empty() ? "" : " < ") + f.name;
  }
  std::cout << "\nfastest first: " << order << "\n";
}

int compare(const Words& words, const std::vector<std::string>& arguments) {
  const auto ranks = static_cast<int>(words.bench.ranks);
  if (words.what == "zero") {
    const auto figures = measure(words, {"stages", ranks}, arguments);
    print(words, figures);
    print_order(figures);
    return 0;
  }
  const int gpus = words.bench.use_cpu ? 0 : train::visible_gpus();
  if (gpus > 0 && gpus < ranks) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("{} ranks are requested, and {} GPUs are visible", ranks, gpus),
        fmt::format("--nproc {} uses all of them, --cpu none", gpus));
  }
  std::vector<Side> sides = {{"replicating"}, {"threads"}, {"processes", ranks}};
  if (gpus > 0) {  // run NCCL once with and once without peer-to-peer copies
    for (size_t index = 0; index < 3; ++index) {
      Side other = sides[index];
      other.environment = {{"NCCL_P2P_DISABLE", "1"}};
      other.note = ", without peer-to-peer";
      sides.push_back(std::move(other));
    }
  }
  std::vector<BenchFigures> figures;
  for (const Side& side : sides) {
    for (BenchFigures& f : measure(words, side, arguments)) {
      figures.push_back(std::move(f));
    }
  }
  print(words, figures);
  return 0;
}

}  // namespace

int run_bench(std::vector<std::string> arguments) {
  const std::vector<std::string> given = arguments;
  Words words;
  BenchOptions& bench = words.bench;
  CLI::App app(
      "Compare ways to train the same model on this machine. zero: the ZeRO stages, with and "
      "without offload, alternately. dp-vs-ddp: one process that replicates the module in every "
      "step (DataParallel), ranks as threads of one process, ranks as processes; on GPUs with and "
      "without NCCL's peer-to-peer copies.",
      "lockstep bench");
  app.add_option("what", words.what, "zero or dp-vs-ddp")->required();
  app.add_option("--nproc", bench.ranks, "Ranks")->capture_default_str();
  app.add_option("--steps", bench.steps, "Number of measured steps. int")->capture_default_str();
  app.add_option("--warm", bench.warm, "Number of warm-up steps. int")->capture_default_str();
  app.add_option("--layers", bench.layers, "Number of layers. int")->capture_default_str();
  app.add_option("--width", bench.width, "Width of the model. int")->capture_default_str();
  app.add_option("--vocabulary", bench.vocabulary, "Vocabulary size. int")->capture_default_str();
  app.add_option("--length", bench.length, "Tokens per sequence. int")->capture_default_str();
  app.add_option("--rows", bench.rows, "Sequences per rank. int")->capture_default_str();
  app.add_flag(
      "--float32", bench.float32, "Use float32 instead of bfloat16 for weights and activations");
  app.add_flag("--cpu", bench.use_cpu, "Use the CPU even if GPUs are visible");
  app.add_option("--side", words.side)->group("");  // internal options, for the processes of a side
  app.add_option("--result", words.result)->group("");
  if (start::parse(app, std::move(arguments)) == start::Parsed::kHelpShown) {
    return 0;
  }
  if (words.what != "zero" && words.what != "dp-vs-ddp") {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("`lockstep bench {}`: unknown comparison", words.what),
        "use zero or dp-vs-ddp");
  }
  const auto least = std::min(
      {bench.ranks,
       bench.steps,
       bench.layers,
       bench.width,
       bench.vocabulary,
       bench.length - 1,
       bench.rows,
       bench.warm + 1});
  if (least < 1 || (bench.width > 64 && bench.width % 64 != 0)) {
    throw Error(
        ErrorKind::kConfig,
        "`lockstep bench` requires sizes of at least 1 (--length: 2), and widths above 64 in "
        "multiples of 64");
  }
  return words.side.empty() ? compare(words, given) : run_side(words);
}

}  // namespace lockstep::cli
