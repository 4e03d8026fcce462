// Data by a name of the Hub: data.dataset_name, as the example scripts of transformers take it.
#pragma once

#include "base/hugging_face_cache.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// The files of `data.dataset_name` as data.train, data.validation and data.test; an empty map
/// where no name is given. A name is a folder, or a data set that is on this machine: in the Hub's
/// cache (`hf download --repo-type dataset`), or in that of Hugging Face's `datasets` as Arrow
/// files. Which file is of which split and configuration is read from the front of its README.md,
/// else from the files' names, as `datasets` does. data.test is filled where data.test_split or
/// training.do_predict asks for it. Nothing is fetched: a problem says how to.
Value dataset_settings(const Value& tree, const EnvironmentLookup& environment, Problems& problems);

}  // namespace lockstep::config
