// Locations of a run's ranks, for `lockstep ctl RUN stacks` and `lockstep monitor --text`.
#pragma once

#include "train/job.h"

namespace lockstep::train {

/// While an instance exists, a file in the run folder contains the location of each rank's status
/// block (base/rank_status.h). The constructor also writes the rank's coordinate to the block. If
/// the folder is not writable, logs one warning, and the run continues.
class RankPlaces {
 public:
  /// Must be called on every rank.
  RankPlaces(Job& job, RankContext& rank_context);
  ~RankPlaces();
  RankPlaces(const RankPlaces&) = delete;
  RankPlaces& operator=(const RankPlaces&) = delete;

 private:
  std::filesystem::path folder_;  // folder that this rank wrote to; empty if none
};

}  // namespace lockstep::train
