// From text files to token files, once: the cache.
#pragma once

#include <filesystem>

#include "data/encoder.h"
#include "data/options.h"

namespace lockstep::data {

/// Token files; an empty path is a split that the options do not name.
struct PreparedData {
  std::filesystem::path train, validation, test;
};

/// Tokenizes what options.train, .validation and .test name into options.cache_dir, unless whole
/// token files of the same contents, options and tokenizer are there already; a damaged one is made
/// again. Rank 0 calls it while the others wait, and sends them the paths. Streams: memory does not
/// grow with the files. The result does not depend on the number of threads. Errors name file, line
/// and field; a file appears whole or not at all.
PreparedData prepare_data(const DataOptions& options, const Encoder& encoder);

}  // namespace lockstep::data
