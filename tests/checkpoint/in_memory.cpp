// The folders of these tests are in memory where they can be: on a disk that others keep busy, the
// hundreds of fsyncs of this suite take tens of seconds. TMPDIR=/tmp runs them on the disk.
#include <cstdlib>

#include <unistd.h>

namespace {

[[maybe_unused]] const bool kInMemory =
    ::access("/dev/shm", W_OK) == 0 && ::setenv("TMPDIR", "/dev/shm", 0) == 0;

}  // namespace
