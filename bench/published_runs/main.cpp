// Predictions beside published runs, and the fit of the cost model to a fifth of them.

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "published_runs/validate.h"

namespace lockstep::plan {

namespace {

struct Options {
  std::string file, write;
  bool fit = false, leave_one_out = false;
};

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
  if (options.leave_one_out) {
    leave_one_system_out(runs, tell);
    return 0;
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
  app.add_option("--write", options.write, "With --fit: the source file to write")->needs(fit);
  app.add_flag(
      "--leave-one-out",
      options.leave_one_out,
      "Fit once for each training system, without its runs, and tell how well they are predicted");
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::plan::run(options);
  } catch (const lockstep::Error& error) {
    std::cerr << error.what() << "\n";
    return lockstep::exit_code(error.kind());
  }
}
