// Where the ranks of this run are, told to `lockstep ctl RUN stacks` and `lockstep monitor --text`.
#pragma once

#include "train/job.h"

namespace lockstep::train {

/// While it lives, the run's folder says where each rank's pulse is (base/rank_status.h), and the
/// pulse what the rank's coordinate is. A folder that cannot be written is told of once, and the
/// run goes on.
class RankPlaces {
 public:
  /// Every rank must call.
  RankPlaces(Job& job, RankContext& rank_context);
  ~RankPlaces();
  RankPlaces(const RankPlaces&) = delete;
  RankPlaces& operator=(const RankPlaces&) = delete;

 private:
  std::filesystem::path folder_;  // where this rank wrote; empty: it did not
};

}  // namespace lockstep::train
