// Builds a worker's argv from the words after the options.
#pragma once

#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

struct ProgramRules {
  bool module = false;     // run the program as a Python module: python -u -m NAME
  bool no_python = false;  // run the program directly, without Python
};

struct Program {
  std::vector<std::string> argv;
  std::string name;        // "train.py"
  size_t argument_at = 0;  // index of the program's first argument
  bool ours = false;       // true for a Lockstep command
};

/// Returns the program that workers run. `words` are the program and its arguments. If the program
/// is a Lockstep command ("train"), the workers run this executable with it. An empty list means
/// "train". An executable that is not a script is run directly. Anything else is passed to
/// ${PYTHON_EXEC:-python} -u.
Program worker_program(
    const std::vector<std::string>& words,
    const ProgramRules& rules,
    const Environment& environment);

/// Returns the Lockstep command that is equivalent to open-unlearning's src/train.py or
/// src/eval.py, with their configuration folder. Empty for other programs. `words` are the program
/// and its arguments.
std::vector<std::string> own_words_for(const std::vector<std::string>& words);

/// Returns the path of the running program.
std::string own_path();
/// Returns the file that a shell would run for `name`. Empty if there is none.
std::string find_in_path(const std::string& name, const Environment& environment);

}  // namespace lockstep::launch
