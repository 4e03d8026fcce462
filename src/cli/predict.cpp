// `lockstep predict`: labels rows with a trained classifier.
#include "cli/predict.h"

#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/classify.h"
#include "cli/rank_context.h"
#include "config/resolve.h"
#include "start/completion.h"
#include "train/weights/adapter_folder.h"

namespace lockstep::cli {
namespace {

config::ResolveOptions predict_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "predict";
  options.common = {
      {"Keys",
       {"model.path",
        "tokenizer.path",
        "lora.adapter",
        "quantization.bits",
        "data.test",
        "data.sequence_length",
        "data.text_field",
        "data.label_field",
        "task.save_scores",
        "training.per_device_eval_batch_size",
        "training.bf16",
        "parallel.tensor"}}};
  options.required = {"model.path"};
  options.flags = {
      {"nproc",
       Kind::kValue,
       "Ranks to start on this machine. int; default: one per GPU, otherwise 1"},
      {"input",
       Kind::kKey,
       "Rows to classify, as data.test: JSON lines, CSV, TSV, Parquet or Arrow. path",
       "data.test"},
      {"data", Kind::kKey, "The same as --input", "data.test"},
      {"text", Kind::kValue, "A single text to classify. string"},
      {"output", Kind::kValue, "File to write, one JSON object per row. path; default: stdout"},
      {"model", Kind::kKey, "The same as model.path", "model.path"},
      {"adapter", Kind::kKey, "The same as lora.adapter", "lora.adapter"},
  };
  return options;
}

void write_lines(const std::string& lines, const std::optional<std::string>& path) {
  if (path) {
    write_file_atomically(*path, lines);
  } else if (
      std::fwrite(lines.data(), 1, lines.size(), stdout) != lines.size() ||
      std::fflush(stdout) != 0) {
    throw Error(ErrorKind::kRun, "cannot write to stdout");
  }
}

int predict(const config::Resolution& resolution, train::RankContext& rank_context) {
  config::Config config = resolution.config;
  config.data.train.clear();
  config.data.validation.clear();
  const ClassifiedRows rows = classify_rows(
      config,
      resolution.origins,
      train::LabelsNeeded::kNone,
      rank_context,
      resolution.value("text"));
  if (!rank_context.is_first()) {
    return 0;
  }
  std::string lines;
  train::Answered answered = rows.answered();
  answered.shown = train::Shown::kAll;
  for (size_t row = 0; row < answered.set.targets.classes.size(); ++row) {
    lines += train::prediction_line(answered, row);
    lines += '\n';
  }
  write_lines(lines, resolution.value("output"));
  return 0;
}

}  // namespace

int run_predict(std::vector<std::string> arguments) {
  const config::ResolveOptions options = predict_options();
  config::Resolution resolution = config::resolve(arguments, options);
  if (resolution.help) {
    return start::print_help(options, resolution, arguments);
  }
  if (resolution.value("text").has_value() == !resolution.config.data.test.empty()) {
    throw Error(
        ErrorKind::kConfig,
        resolution.value("text") ? "--input and --text cannot be combined" : "nothing to classify",
        "give one of --input FILE and --text TEXT");
  }
  train::use_adapter_folder(resolution.config);
  RankOptions ranks;
  ranks.command = "predict";
  ranks.arguments = std::move(arguments);
  ranks.ranks = resolution.integer("nproc", 1);
  ranks.use_cpu = resolution.config.training.use_cpu;
  return run_ranks(
      ranks, [&](train::RankContext& rank_context) { return predict(resolution, rank_context); });
}

}  // namespace lockstep::cli
