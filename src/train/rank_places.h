// Locations of a run's ranks, for `lockstep ctl RUN stacks` and `lockstep monitor --text`.
#pragma once

#include "train/job.h"

namespace lockstep::train {

/// While an instance exists, the run folder lists where each rank's status block is
/// (base/rank_status.h), and the block contains the rank's coordinate. If the folder is not
/// writable, warns once; the run continues.
class RankPlaces {
 public:
  /// Every rank must call.
  RankPlaces(Job& job, RankContext& rank_context);
  ~RankPlaces();
  RankPlaces(const RankPlaces&) = delete;
  RankPlaces& operator=(const RankPlaces&) = delete;

 private:
  std::filesystem::path folder_;  // folder this rank wrote to; empty: none
};

}  // namespace lockstep::train
