#include "base/temporary_folder.h"

#include <system_error>

#include "base/error.h"
#include "base/format.h"

namespace lockstep {

std::filesystem::path temporary_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("no folder for temporary files: {}", error.message()),
        "set TMPDIR to a writable folder");
  }
  return folder;
}

}  // namespace lockstep
