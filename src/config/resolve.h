// From the words of a command line to the whole configuration, with where each value came from.
//
//   lockstep COMMAND [-c file.yaml | --config-path DIR --config-name NAME] [key=value | --key
//   value]...
//
// Layers, each over the one before: the defaults; the variables of `accelerate launch`; an
// accelerate YAML file (--config_file); the configuration file with its Hydra defaults list; the
// overrides and flags, in the order of the command line. A DeepSpeed JSON file (training.deepspeed)
// fills what no layer gave; where it contradicts one that did, that is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "config/core/origin.h"

namespace lockstep::config {

/// A flag of one command, beside the configuration's own keys: "--nproc 2", "--dry-run", "--json".
struct Flag {
  enum class Kind {
    kSwitch,  // --json
    kValue,   // --nproc 2, --nproc=2; may be given several times
    kKey,     // --model DIR: another spelling of the key `key`; it takes what the key takes
  };
  std::string name;  // with - or _ between words; both are understood
  Kind kind = Kind::kSwitch;
  std::string help;
  std::string key = {};  // for kKey: the dotted key, "model.path"
};

/// What a command does with the configuration.
enum class Purpose {
  kRun,      // values that are not built yet are refused
  kPredict,  // they may be predicted
};

struct ResolveOptions {
  /// The command, for messages and --help: "train".
  std::string command;
  std::vector<Flag> flags;
  /// Keys that must have a value: {"training.output_dir", "data.train"}.
  std::vector<std::string> required;
  Purpose purpose = Purpose::kRun;
  /// Number of ranks of the job, where it is known: the sizes of `parallel` and DeepSpeed's
  /// train_batch_size are checked against it. Else LOCKSTEP_FIRST_WORLD_SIZE (of a job that goes on
  /// with other ranks than it began with) or WORLD_SIZE of the environment, else the flag
  /// --nproc, else nothing is checked.
  std::optional<int64_t> ranks;
  /// Looks up an environment variable; empty: the process's own environment.
  std::function<std::optional<std::string>(const std::string&)> environment;
};

struct Resolution {
  Config config;
  /// Where each value came from, by dotted key ("training.seed"). Keys that are not in it have
  /// their default.
  Origins origins;
  /// What was accepted but has no effect here, and why. To be shown by rank 0.
  std::vector<std::string> warnings;
  /// The command's own flags, by name with - between words, each with the values that were given.
  std::map<std::string, std::vector<std::string>> flags;
  /// --help was given: nothing else was looked at; print help().
  bool help = false;

  bool has(const std::string& flag) const { return flags.count(flag) != 0; }
  /// The last value of a flag.
  std::optional<std::string> value(const std::string& flag) const;
  /// The same as an integer of at least `least`; anything else is an Error(kConfig).
  std::optional<int64_t> integer(const std::string& flag, int64_t least) const;
};

/// Reads, composes, interpolates, binds and validates. Throws Error(kConfig) with every problem
/// that was found, each with where it stands and what to do. Reads files and the environment; no
/// device is touched.
Resolution resolve(const std::vector<std::string>& arguments, const ResolveOptions& options);

/// Data-parallel ranks of a job of `ranks`. Throws Error(kConfig), with the sizes that would fit,
/// where `ranks` is not data x pipeline x context x tensor.
int64_t data_parallel_ranks(const ParallelSection& parallel, int64_t ranks);

}  // namespace lockstep::config
