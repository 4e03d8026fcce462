// Places the temporary folders of these tests in a memory file system if possible: on a busy disk
// the hundreds of fsyncs of this suite take tens of seconds. TMPDIR=/tmp uses the disk.
#include <cstdlib>

#include <unistd.h>

namespace {

[[maybe_unused]] const bool kInMemory =
    ::access("/dev/shm", W_OK) == 0 && ::setenv("TMPDIR", "/dev/shm", 0) == 0;

}  // namespace
