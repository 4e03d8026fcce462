// Selection of held-out documents.
#pragma once

#include <cstdint>

namespace lockstep::data {

enum class Split { kTrain, kValidation, kTest };

/// Selects `fraction` of a stream of elements: one of each run of 1/fraction elements, at a
/// position drawn from `key`. The share is exact to within one element, and a stream of at least
/// 1/fraction elements has at least one selected.
class StratifiedChoice {
 public:
  /// fraction in [0, 1].
  StratifiedChoice(double fraction, uint64_t key);
  bool next();

 private:
  void start_run();

  double fraction_;
  uint64_t key_;
  int64_t at_ = 0, run_ = 0, chosen_ = 0, run_end_ = 0;
};

/// Assigns documents, in order, to train, validation and test. Depends only on the fractions, the
/// seed and the document's index.
class Splitter {
 public:
  Splitter(double validation_fraction, double test_fraction, uint64_t seed);
  Split next();

 private:
  StratifiedChoice validation_, test_;
};

}  // namespace lockstep::data
