// Locks an output folder and protects what it holds.
#include "train/output_folder.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fnmatch.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/disk.h"
#include "checkpoint/folders.h"
#include "checkpoint/object_store_run.h"
#include "config/core/cache_folder.h"
#include "monitor/events.h"
#include "objects/store.h"
#include "text/tokenizer_files.h"
#include "train/checkpointing.h"
#include "watch/record/run.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// Names that runs, exports and Hugging Face's Trainer write into an output folder, as shell
// patterns.
constexpr const char* kModelFiles[] = {
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "pytorch_model-*-of-*.bin"};
constexpr const char* kFilesOfModels[] = {
    "generation_config.json", "base.json", "id2label.json", "classification.json"};
// config.yaml is not listed: it may be the file that configures this run, which replaces it.
constexpr const char* kRecords[] = {
    "metrics.jsonl",
    "events.jsonl",
    "ranks.jsonl",
    "trainer_state.json",
    "*_results.json",
    "predictions*.jsonl",
    "predict_results*.txt",
    "classification_report.*",
    "regression_report.json",
    "confusion_matrix.*",
    "multilabel_confusion.csv",
    "most_confused.csv",
    "calibration.*",
    "top_losses.jsonl",
    "report.html",
    "losses.svg",
    "evaluations.svg",
    "roc_curve.svg",
    "precision_recall_curve.svg",
    "unlearning_path.svg",
    "truth_ratios.svg",
    "trace-*.json",
    "evals"};

bool is_any_of(const std::string& name, std::span<const char* const> patterns) {
  return std::ranges::any_of(
      patterns, [&](const char* pattern) { return ::fnmatch(pattern, name.c_str(), 0) == 0; });
}

/// What an output folder holds, by name.
struct Contents {
  std::vector<std::string> checkpoints, model, beside_model, tokenizer, records;

  bool is_free() const { return checkpoints.empty() && model.empty(); }
  /// True if an earlier run wrote here. Otherwise files with a run's names may be the user's.
  bool has_run() const {
    return !is_free() || std::ranges::find(records, monitor::kEventsName) != records.end();
  }
};

Contents sorted_contents(const std::vector<std::string>& names) {
  Contents contents;
  for (const std::string& name : names) {
    if (checkpoint::checkpoint_step(name)) {
      contents.checkpoints.push_back(name);
    } else if (is_any_of(name, kModelFiles)) {
      contents.model.push_back(name);
    } else if (is_any_of(name, kFilesOfModels)) {
      contents.beside_model.push_back(name);
    } else if (text::is_tokenizer_file(name)) {
      contents.tokenizer.push_back(name);
    } else if (is_any_of(name, kRecords)) {
      contents.records.push_back(name);
    }
  }
  std::ranges::sort(contents.checkpoints, {}, [](const std::string& name) {
    return checkpoint::checkpoint_step(name).value();
  });
  return contents;
}

Contents contents_of(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    names.insert(at->path().filename().string());
  }
  return sorted_contents({names.begin(), names.end()});
}

/// "checkpoint-2, checkpoint-4 and model.safetensors"
std::string list_of(const Contents& contents) {
  constexpr size_t kShown = 4;
  std::vector<std::string> all = contents.checkpoints;
  all.insert(all.end(), contents.model.begin(), contents.model.end());
  const size_t shown = std::min(all.size(), kShown);
  return fmt::format(
      "{}{}",
      fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      all.size() > shown ? fmt::format(" and {} more", all.size() - shown) : "");
}

Error occupied(const std::string& output, const Contents& contents) {
  return Error(
      ErrorKind::kConfig,
      fmt::format(
          "the output folder {} already holds {}: {}",
          output,
          contents.checkpoints.empty() ? "a model" : "a run",
          list_of(contents)),
      contents.checkpoints.empty()
          ? "use another output_dir, or set overwrite_output_dir=true to replace it"
          : "continue that run with resume_from_checkpoint=true, use another output_dir, or set "
            "overwrite_output_dir=true to replace it");
}

/// The path with symbolic links resolved, also if its end does not exist.
fs::path real_path(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(path, ignored).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

/// A model or adapter that the run reads, with its configuration key.
struct RunSource {
  const char* key;
  std::string path;
};

std::vector<RunSource> sources_of(const config::Config& config, const model::ModelSource& source) {
  using Kind = model::ModelSource::Kind;
  std::vector<RunSource> sources;
  const auto add = [&](const char* key, const std::string& path) {
    // A name on the Hub may also be that of the output folder.
    std::error_code ignored;
    if (objects::is_remote(path) || fs::is_regular_file(path, ignored) ||
        !contents_of(path).model.empty()) {
      sources.push_back({key, path});
    }
  };
  add("model.path",
      source.kind == Kind::kFolder && !objects::is_remote(config.model.path)
          ? source.folder.string()
          : config.model.path);
  add("lora.adapter", config.lora.adapter);
  add("unlearning.mia_reference_path", config.unlearning.mia_reference_path.value_or(""));
  return sources;
}

/// Returns the first name below `output` on the way to `path`: "" for `output` itself, nullopt if
/// the path is elsewhere. Both are local or both in an object store.
std::optional<std::string> name_in_output(const std::string& output, const std::string& path) {
  if (objects::is_remote(output) != objects::is_remote(path)) {
    return std::nullopt;
  }
  const bool is_remote = objects::is_remote(output);
  const fs::path base =
      is_remote ? fs::path(objects::parse_location(output).text()) : real_path(output);
  const fs::path below =
      (is_remote ? fs::path(objects::parse_location(path).text()) : real_path(path))
          .lexically_relative(base);
  if (below.empty() || *below.begin() == "..") {
    return std::nullopt;
  }
  return *below.begin() == "." ? "" : below.begin()->string();
}

void check_sources(
    const std::string& output, const std::vector<RunSource>& sources, bool continues) {
  for (const RunSource& source : sources) {
    const auto name = name_in_output(output, source.path);
    const bool is_replaced = name && (name->empty() || is_any_of(*name, kModelFiles) ||
                                      (!continues && checkpoint::checkpoint_step(*name)));
    if (is_replaced) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "the run would replace its own source: {}={} is in the output folder {}",
              source.key,
              source.path,
              output),
          "use another output_dir");
    }
  }
}

/// True if the launch of this round began the run in the folder.
bool belongs_to_job(const fs::path& folder, const JobRound& round) {
  if (round.number == 0 || round.job.empty()) {
    return false;
  }
  const std::vector<watch::Event> events = watch::read_events(folder);
  const auto began = std::find_if(events.rbegin(), events.rend(), [](const watch::Event& event) {
    return event.name == "began";
  });
  return began != events.rend() && began->fields.value("job", "") == round.job;
}

/// Removes the checkpoints first and the records last, so that a removal that is interrupted leaves
/// a folder that is refused or replaced in the same way.
void remove_run(const Job& job, const Contents& contents, bool keeps_tokenizer) {
  std::vector<std::string> names = contents.checkpoints;
  const auto add = [&](const std::vector<std::string>& more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  add(contents.model);
  add(contents.beside_model);
  if (!keeps_tokenizer) {
    add(contents.tokenizer);
  }
  add(contents.records);
  if (job.stored) {
    job.stored->remove_files(names);
    return;
  }
  for (const std::string& name : names) {
    checkpoint::system_disk().remove(fs::path(job.config.training.output_dir) / name);
  }
}

void make_ready(const Job& job, const JobRound& round) {
  const config::TrainingSection& training = job.config.training;
  const std::string output = job.stored ? job.stored->place().text() : training.output_dir;
  // A checkpoint in an object store is resumed from a local copy.
  const bool resumes =
      job.resume_from &&
      (name_in_output(training.output_dir, job.resume_from->string()).has_value() ||
       name_in_output(output, training.resume_from_checkpoint.value_or("")).has_value());
  const bool continues = resumes || belongs_to_job(training.output_dir, round);
  check_sources(output, sources_of(job.config, job.source), continues);
  if (continues) {
    return;
  }
  const Contents contents =
      job.stored ? sorted_contents(job.stored->names()) : contents_of(training.output_dir);
  if (!contents.is_free() && !training.overwrite_output_dir) {
    throw occupied(output, contents);
  }
  if (!contents.has_run()) {
    return;
  }
  log_info(
      "{}: replaced {}",
      output,
      contents.is_free() ? "the records of a run that left no model and no checkpoint"
                         : list_of(contents));
  const bool reads_tokenizer =
      !job.config.tokenizer.path.empty() &&
      name_in_output(output, job.config.tokenizer.path) == std::optional<std::string>("");
  remove_run(job, contents, reads_tokenizer);
}

}  // namespace

void take_output(Job& job, RankContext& context) {
  std::string& output = job.config.training.output_dir;
  std::optional<objects::Location> place;
  if (objects::is_remote(output)) {
    place = objects::parse_location(output);
    const auto cache = config::cache_folder(job.config.data.cache_dir);
    output = (cache / "runs" / hash_hex(place->text()).substr(0, 12)).string();
  }
  checkpoint::check_shared_folder(output, context.communicator);
  const JobRound& round = context.round;
  const checkpoint::RunIdentity run{round.job, round.number, round.term, round.job_is_unique};
  job.hold = checkpoint::OutputDirLock::take(output, run, context.communicator);
  if (place) {
    job.stored = checkpoint::ObjectStoreRun::take(*place, output, run, context.communicator);
    if (context.is_first()) {
      log_info("the run's folder is {}; local working folder: {}", place->text(), output);
    }
  }
  job.resume_from = find_checkpoint_to_resume(job, context);
  on_first_rank(context.communicator, [&] {
    make_ready(job, round);
    return "";
  });
}

void check_output(const config::Config& config, const model::ModelSource& source) {
  const config::TrainingSection& training = config.training;
  const std::string asked = training.resume_from_checkpoint.value_or("false");
  const bool is_remote = objects::is_remote(training.output_dir);
  const bool continues =
      asked == "true" ? is_remote || !checkpoint::list_checkpoints(training.output_dir).empty()
                      : asked != "false" && name_in_output(training.output_dir, asked).has_value();
  check_sources(training.output_dir, sources_of(config, source), continues);
  if (continues || is_remote || training.overwrite_output_dir) {
    return;
  }
  if (const Contents contents = contents_of(training.output_dir); !contents.is_free()) {
    throw occupied(training.output_dir, contents);
  }
}

}  // namespace lockstep::train
