#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

void narrow_packed(ops::PackedPart& part, const mesh::Cut& cut) {
  if (cut.dim == 0) {
    part.rows.clear();
    for (const mesh::Range& range : cut.ranges) {
      part.rows.push_back({range.begin, range.end});
    }
  } else if (cut.dim == 1) {
    part.columns = {cut.ranges.front().begin, cut.ranges.front().end};
  }
}

}  // namespace lockstep::parallel
