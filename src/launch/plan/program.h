// Worker's argv from the words after the options.
#pragma once

#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

struct ProgramRules {
  bool module = false;     // run it as a Python module: python -u -m NAME
  bool no_python = false;  // run it directly
};

struct Program {
  std::vector<std::string> argv;
  std::string name;        // "train.py"
  size_t argument_at = 0;  // index of the program's first argument
  bool ours = false;       // a command of this program
};

/// `words` are the program and its arguments. A command of Lockstep ("train") runs this program
/// again, as does an empty list (then "train"); an executable that is not a script runs directly;
/// anything else is passed to ${PYTHON_EXEC:-python} -u.
Program worker_program(
    const std::vector<std::string>& words,
    const ProgramRules& rules,
    const Environment& environment);

/// For open-unlearning's src/train.py and src/eval.py: the equivalent Lockstep command with their
/// configuration folder; empty for other programs. `words` as above.
std::vector<std::string> own_words_for(const std::vector<std::string>& words);

/// Returns the path of the running program.
std::string own_path();
/// Returns the file that a shell would run for `name`; empty if there is none.
std::string find_in_path(const std::string& name, const Environment& environment);

}  // namespace lockstep::launch
