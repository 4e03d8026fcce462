// Lookup of datasets by Hub name (data.dataset_name), as in transformers' example scripts.
#pragma once

#include "base/hugging_face_cache.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Returns the files of `data.dataset_name` as data.train, data.validation and data.test; an empty
/// map if no name is set. The name refers to a folder or to a dataset on this machine: in the Hub
/// cache (`hf download --repo-type dataset`), or as Arrow files in the cache of Hugging Face's
/// `datasets`. Splits and configurations are determined from the header of README.md, otherwise
/// from file names, as in `datasets`. data.test is set if data.test_split or training.do_predict is
/// set. Nothing is downloaded; if the dataset is missing, the problem contains the download
/// command.
Value dataset_settings(const Value& tree, const EnvironmentLookup& environment, Problems& problems);

}  // namespace lockstep::config
