// Tokenization of text files into a cache of token files.
#pragma once

#include <filesystem>

#include "data/encoder.h"
#include "data/options.h"

namespace lockstep::data {

/// Paths of token files; empty for splits without data.
struct PreparedData {
  std::filesystem::path train, validation, test;
};

/// Tokenizes the files of options.train, .validation and .test into options.cache_dir, unless
/// complete token files of the same contents, options and tokenizer exist; damaged ones are
/// re-created. Rank 0 calls it while the other ranks wait, and sends them the paths. Streams:
/// memory use is independent of the files' size. The result does not depend on the number of
/// threads. Errors name file, line and field; files appear atomically.
PreparedData prepare_data(const DataOptions& options, const Encoder& encoder);

}  // namespace lockstep::data
