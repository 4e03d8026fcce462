// Order in which a run reads its training data.
#pragma once

#include "data/sampler.h"
#include "train/job.h"

namespace lockstep::train {

/// Returns the options of this rank's sampler. Requires the data, the axes and the global batch of
/// the job. If sequences are grouped by length, reads the lengths of all of them.
data::SamplerOptions sampler_options(const Job& job, const RankContext& rank_context);

}  // namespace lockstep::train
