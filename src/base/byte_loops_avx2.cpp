#include "base/byte_loops_of.h"

namespace lockstep {

extern const ByteLoops kAvx2Loops = kLoops;

}  // namespace lockstep
