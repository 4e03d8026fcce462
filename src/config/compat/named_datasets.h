// Datasets by Hub name: data.dataset_name, as in the example scripts of transformers.
#pragma once

#include "base/hugging_face_cache.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Returns the files of `data.dataset_name` as data.train, data.validation and data.test; an empty
/// map if no name is set. A name is a folder, or a dataset on this machine: in the Hub's cache (`hf
/// download --repo-type dataset`), or as Arrow files in the cache of Hugging Face's `datasets`.
/// Splits and configurations of the files are read from the header of README.md, otherwise from the
/// file names, as in `datasets`. data.test is set if data.test_split or training.do_predict is set.
/// Nothing is downloaded: the problem contains the command to do so.
Value dataset_settings(const Value& tree, const EnvironmentLookup& environment, Problems& problems);

}  // namespace lockstep::config
