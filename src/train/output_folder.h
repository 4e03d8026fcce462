// Output folder of a run: its lock, and the refusal to replace a run, a model or a source of the
// run.
#pragma once

#include "config/core/config.h"
#include "model/source.h"
#include "train/job.h"

namespace lockstep::train {

/// Locks training.output_dir for this run, finds the checkpoint to resume from (job.resume_from)
/// and makes the folder ready, before anything is computed. If the folder is in an object store,
/// training.output_dir is replaced by a local working folder. Every rank must call.
///
/// A run that resumes from a checkpoint of the folder continues there, as does a later round of the
/// job that began there. Otherwise throws Error (config) if the folder holds a run or a model,
/// unless training.overwrite_output_dir is set: then the files of the earlier run are removed.
/// Records of a run that left neither a model nor a checkpoint are replaced. Throws Error (config)
/// if the run would replace its own model or adapter. Throws Error (environment) if another run
/// holds the lock, or if the ranks do not see the same folder.
void take_output(Job& job, RankContext& rank_context);

/// The checks of take_output for a dry run: does not lock or modify the folder, and does not
/// look into object stores.
void check_output(const config::Config& config, const model::ModelSource& source);

}  // namespace lockstep::train
