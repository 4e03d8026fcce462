// Generates a sample corpus with a grammar, for the quick start, demonstrations and tests.
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
  double megabytes = 4;  // approximate size of all files together; 0.01 to 1,000
};

struct SampleReport {
  std::vector<std::pair<std::filesystem::path, uint64_t>>
      files;  // files written, and their sizes in bytes
};

/// Writes three kinds of files: stories (train.txt, validation.txt, test.txt; separated by blank
/// lines), instructions with answers that can be checked (instructions.jsonl,
/// instructions_validation.jsonl with instruction, input, output and kind), and labelled documents
/// (labelled.csv, labelled_validation.csv with text and label). No instruction is in both the
/// training and the validation file. The bytes depend only on seed and size.
SampleReport write_sample_corpus(const SampleOptions& options);

}  // namespace lockstep::data
