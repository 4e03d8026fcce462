// Tokenizes text files into a cache of token files.
#pragma once

#include <filesystem>

#include "data/encoder.h"
#include "data/options.h"

namespace lockstep::data {

/// Paths of token files. Empty for splits without data.
struct PreparedData {
  std::filesystem::path train, validation, test;
};

/// Tokenizes the files of options.train, .validation and .test and writes token files to
/// options.cache_dir. Complete token files of the same contents, options and tokenizer are reused;
/// damaged ones are written again. Rank 0 calls this function while the other ranks wait, and sends
/// them the paths. Files are streamed, so memory use does not depend on their size. The result does
/// not depend on the number of threads. Token files appear atomically. Errors contain file, line
/// and field.
PreparedData prepare_data(const DataOptions& options, const Encoder& encoder);

}  // namespace lockstep::data
