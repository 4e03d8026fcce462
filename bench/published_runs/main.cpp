// Predictions beside published runs, and the fit of the cost model to a fifth of them.

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "published_runs/validate.h"

namespace lockstep::plan {

namespace {

struct Options {
  std::string file, write, leave_one_out;
  bool fit = false;
};

// Systems that FILE has are not held out again: it is written as they are done.
int leave_out(const std::vector<Run>& runs, const Options& options) {
  std::ofstream file(options.leave_one_out, std::ios::app);
  const auto print = [](const HeldOut& held) {
    std::cout
        << fmt::format(
               "{}: median error {:.1f}% of {}, fitted without it; {:.1f}%, were it unknown by "
               "name",
               held.system,
               100 * median_error(held.truths),
               held.truths.size(),
               100 * median_error(held.unknown))
        << std::endl;
  };
  const std::vector<HeldOut> known = read_held(options.leave_one_out);
  std::ranges::for_each(known, print);
  const std::vector<HeldOut> times = leave_one_system_out(runs, known, [&](const HeldOut& held) {
    file << held_text(held) << std::flush;
    print(held);
  });
  HeldOut all{"all", {}, {}, {}, {}};
  for (const HeldOut& held : times) {
    all.truths.insert(all.truths.end(), held.truths.begin(), held.truths.end());
    all.unknown.insert(all.unknown.end(), held.unknown.begin(), held.unknown.end());
  }
  print(all);
  const Holding time = bars_that_hold(times), memory = bars_that_hold(memory_by_system(runs));
  for (const auto& [what, holding] : {std::pair("step time", time), std::pair("memory", memory)}) {
    std::cout << fmt::format(
        "error bars of {}: {} (quantiles of {:.1f}%); by the other systems' bars {} of {} runs lie "
        "within "
        "theirs ({:.1f}%)\n",
        what,
        text_of(holding.bars),
        100 * holding.level,
        holding.inside,
        holding.runs,
        100.0 * static_cast<double>(holding.inside) / static_cast<double>(holding.runs));
  }
  const Order order = order_that_holds(times);
  std::cout << fmt::format(
      "two runs of a sweep that are predicted {:.1f}% apart stand in that order in nine of ten: of "
      "nearer ones {} of {}, of others {} of {}\n",
      100 * order.apart,
      order.nearer_right,
      order.nearer,
      order.further_right,
      order.further);
  if (!options.write.empty()) {
    write_file_atomically(
        options.write,
        error_bars_source({time.bars, memory.bars, 1 + order.apart}),
        ErrorKind::kEnvironment);
  }
  return 0;
}

int print_verdict(const std::vector<Run>& runs) {
  const Verdict verdict = judge(validate(runs));
  std::cout << verdict.text << verdict.json << "\n";
  return verdict.met ? 0 : 1;
}

int run(const Options& options) {
  const std::vector<Run> runs = read_runs(options.file);
  if (runs.empty()) {
    throw Error(
        ErrorKind::kData,
        options.file + " holds no runs",
        "a row for each metric under the first line");
  }
  const auto tell = [](const std::string& line) { std::cout << line << std::endl; };
  if (!options.leave_one_out.empty()) {
    return leave_out(runs, options);
  }
  if (!options.fit) {
    return print_verdict(runs);
  }
  const std::string text = calibration_source(fit_calibration(runs, tell));
  if (options.write.empty()) {
    std::cout << text;
  } else {
    write_file_atomically(options.write, text, ErrorKind::kEnvironment);
  }
  return 0;
}

}  // namespace

}  // namespace lockstep::plan

int main(int argc, char** argv) {
  lockstep::plan::Options options;
  CLI::App app("Predicts published runs and compares; 1 where a target is missed.");
  app.add_option("runs", options.file, "A CSV file with the columns of docs/plan.md")->required();
  CLI::Option* fit = app.add_flag("--fit", options.fit, "Fit the cost model to the runs instead");
  app.add_option(
      "--write", options.write, "With --fit or --leave-one-out: the source file to write");
  app.add_option(
         "--leave-one-out",
         options.leave_one_out,
         "Fit once for each training system, without its runs, and tell how well they are "
         "predicted "
         "and which error bars hold; this file keeps what was found, and a second call goes on")
      ->excludes(fit);
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::plan::run(options);
  } catch (const lockstep::Error& error) {
    std::cerr << error.what() << "\n";
    return lockstep::exit_code(error.kind());
  }
}
