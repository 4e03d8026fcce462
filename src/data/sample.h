// A corpus of our own, made by a grammar: for the quick start, demonstrations and tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::data {

struct SampleOptions {
  std::filesystem::path folder;
  uint64_t seed = 0;
  double megabytes = 4;  // of all files together, about; 0.01 to 1,000
};

struct SampleReport {
  std::vector<std::pair<std::filesystem::path, uint64_t>> files;  // written, and their bytes
};

/// Writes the corpus: stories (train.txt, validation.txt, test.txt; a blank line between two),
/// instructions with answers that can be checked (instructions.jsonl,
/// instructions_validation.jsonl: instruction, input, output, kind) and labelled documents
/// (labelled.csv, labelled_validation.csv: text, label). No held-out instruction is among those to
/// train on. The bytes depend on seed and size alone.
SampleReport write_sample_corpus(const SampleOptions& options);

}  // namespace lockstep::data
