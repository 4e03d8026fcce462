// Resolution of a command line to the complete configuration, with the origin of each value.
//
// lockstep COMMAND [-c file.yaml | --config-path DIR --config-name NAME] [key=value | --key
// value]...
//
// Layers, later ones override earlier ones: the defaults; the variables of `accelerate launch`; an
// Accelerate YAML file (--config_file); the configuration file with its Hydra defaults list; the
// overrides and flags in order. A DeepSpeed JSON file (training.deepspeed) sets keys that no layer
// set; a contradiction is an error.
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

/// Flag of one command, in addition to the configuration keys: "--nproc 2", "--dry-run", "--json".
struct Flag {
  enum class Kind {
    kSwitch,  // --json
    kValue,   // --nproc 2, --nproc=2; may be given several times
    kKey,     // --model DIR: an alias of `key`, with the same values
  };
  std::string name;  // with - or _ between words; both are accepted
  Kind kind = Kind::kSwitch;
  std::string help;
  std::string key = {};  // for kKey: the dotted key, "model.path"
};

/// Purpose for which the command uses the configuration.
enum class Purpose {
  kRun,      // unsupported values are errors
  kPredict,  // unsupported values are accepted: they may be predicted
};

struct ResolveOptions {
  /// Command, for messages and --help: "train".
  std::string command;
  std::vector<Flag> flags;
  /// Required keys: {"training.output_dir", "data.train"}.
  std::vector<std::string> required;
  Purpose purpose = Purpose::kRun;
  /// Number of ranks of the job, if known; used to check the sizes of `parallel` and DeepSpeed's
  /// train_batch_size. Otherwise the environment variable LOCKSTEP_FIRST_WORLD_SIZE (the initial
  /// world size of an elastic job) or WORLD_SIZE, otherwise the flag --nproc; if none is set,
  /// nothing is checked.
  std::optional<int64_t> ranks;
  /// Looks up an environment variable; if empty, the environment of the process is used.
  std::function<std::optional<std::string>(const std::string&)> environment;
};

struct Resolution {
  Config config;
  /// Origin of each value by dotted key ("training.seed"). Other keys have their default.
  Origins origins;
  /// Accepted settings that have no effect, with reasons. Rank 0 prints them.
  std::vector<std::string> warnings;
  /// The command's own flags, by name with - between words, each with its values.
  std::map<std::string, std::vector<std::string>> flags;
  /// --help was given: nothing else was read; the caller prints help().
  bool help = false;

  bool has(const std::string& flag) const { return flags.count(flag) != 0; }
  /// Returns the last value of a flag.
  std::optional<std::string> value(const std::string& flag) const;
  /// The same as an integer of at least `least`. Throws Error (config) for other values.
  std::optional<int64_t> integer(const std::string& flag, int64_t least) const;
};

/// Reads, composes, interpolates, binds and validates the configuration. Throws Error (config) with
/// every problem, each with its location and a hint. Reads files and the environment; does not use
/// any device.
Resolution resolve(const std::vector<std::string>& arguments, const ResolveOptions& options);

/// Returns the data-parallel size of a job of `ranks`. Throws Error (config) with sizes that would
/// fit if `ranks` is not data x pipeline x context x tensor.
int64_t data_parallel_ranks(const ParallelSection& parallel, int64_t ranks);

}  // namespace lockstep::config
