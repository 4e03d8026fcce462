// From the words after the options to a worker's argv.
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
  size_t argument_at = 0;  // where the program's own arguments begin
  bool ours = false;       // a command of this program
};

/// `words` are the program and its arguments. One of our own commands ("train") runs this program
/// again, as does nothing at all (then it is "train"); an executable that is no script is run
/// directly; anything else is given to
/// ${PYTHON_EXEC:-python} -u.
Program worker_program(
    const std::vector<std::string>& words,
    const ProgramRules& rules,
    const Environment& environment);

/// Of open-unlearning's src/train.py and src/eval.py, the words of our command that does the same
/// with their folder of configurations; empty for any other program. `words` as above.
std::vector<std::string> own_words_for(const std::vector<std::string>& words);

/// The path of the program that is running.
std::string own_path();
/// The file that a shell would run for `name`; empty where there is none.
std::string find_in_path(const std::string& name, const Environment& environment);

}  // namespace lockstep::launch
