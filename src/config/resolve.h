// Resolution of a command line to the complete configuration with the origin of each value.
//
// lockstep COMMAND [-c file.yaml | --config-path DIR --config-name NAME] [key=value | --key
// value]...
//
// Later layers override earlier ones: defaults; variables set by `accelerate launch`; an Accelerate
// YAML file (--config_file); the configuration file with its Hydra defaults list; overrides and
// flags in order. A DeepSpeed JSON file (training.deepspeed) sets keys that no layer sets;
// contradictions are errors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/core/config.h"
#include "config/core/origin.h"

namespace lockstep::config {

/// Command-specific flag, such as "--nproc 2", "--dry-run" or "--json", in addition to the
/// configuration keys.
struct Flag {
  enum class Kind {
    kSwitch,  // --json
    kValue,   // --nproc 2, --nproc=2; may be repeated
    kKey,     // --model DIR: alias of `key`, accepts the same values
  };
  std::string name;  // words are separated by - or _; both are accepted
  Kind kind = Kind::kSwitch;
  std::string help;
  std::string key = {};  // kKey only: dotted key, "model.path"
};

/// Purpose of the configuration.
enum class Purpose {
  kRun,      // unsupported values are errors
  kPredict,  // unsupported values are accepted in order to predict them
};

/// Heading with keys that --help shows without a section.
struct KeyGroup {
  std::string title;
  std::vector<std::string> keys;
};

/// First argument that requests candidates for the last argument instead of a run.
inline constexpr std::string_view kCompleteFlag = "--complete";

struct ResolveOptions {
  /// Command name for messages and --help, such as "train".
  std::string command;
  /// First lines of --help; empty: the general usage.
  std::string usage = {};
  /// Keys that --help shows; empty: those that most training runs set.
  std::vector<KeyGroup> common = {};
  std::vector<Flag> flags;
  /// Required keys, such as {"training.output_dir", "data.train"}.
  std::vector<std::string> required;
  Purpose purpose = Purpose::kRun;
  /// Number of ranks in the job, if known. Used to check the sizes in `parallel` and DeepSpeed's
  /// train_batch_size. If not set, uses the environment variable LOCKSTEP_FIRST_WORLD_SIZE (the
  /// initial world size of an elastic job) or WORLD_SIZE, otherwise the flag --nproc. Without any
  /// of these, the sizes are not checked.
  std::optional<int64_t> ranks;
  /// Lookup of environment variables; empty: the process environment.
  std::function<std::optional<std::string>(const std::string&)> environment;
};

struct Resolution {
  Config config;
  /// Origin of each value by dotted key ("training.seed"). Keys without an entry have their
  /// default.
  Origins origins;
  /// Warnings about accepted settings that have no effect, with reasons. Rank 0 prints them.
  std::vector<std::string> warnings;
  /// Values of the command's own flags. Flag names have - between words.
  std::map<std::string, std::vector<std::string>> flags;
  /// True if --help was given, or kCompleteFlag as the first argument. Nothing else is read, and
  /// the caller prints the help or the candidates.
  bool help = false;
  /// Section or key after --help; empty: the most used keys.
  std::string help_topic = {};

  bool has(const std::string& flag) const { return flags.count(flag) != 0; }
  /// Returns the last value of a flag.
  std::optional<std::string> value(const std::string& flag) const;
  /// Returns the last value of a flag as an integer. Throws Error (config) if it is not an integer
  /// of at least `least`.
  std::optional<int64_t> integer(const std::string& flag, int64_t least) const;
};

/// Reads, composes, interpolates, binds and validates the configuration. Throws Error (config) with
/// all problems, each with its location and a hint. Reads files and the environment but does not
/// use devices.
Resolution resolve(const std::vector<std::string>& arguments, const ResolveOptions& options);

/// Returns the data-parallel size of a job with `ranks` ranks. Throws Error (config) and suggests
/// sizes if `ranks` is not data x pipeline x context x tensor.
int64_t data_parallel_ranks(const ParallelSection& parallel, int64_t ranks);

}  // namespace lockstep::config
