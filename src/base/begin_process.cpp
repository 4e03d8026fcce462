#include "base/begin_process.h"

#include <csignal>
#include <initializer_list>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep {

void begin_process() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) {
      ::open(
          "/dev/null",
          stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);  // gets the lowest free descriptor
    }
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace lockstep
