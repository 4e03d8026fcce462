// Selects held-out documents.
#pragma once

#include <cstdint>

namespace lockstep::data {

enum class Split { kTrain, kValidation, kTest };

/// Selects `fraction` of the elements of a stream. In each run of 1/fraction elements, one element
/// is selected, at a position drawn with `key`. The number of selected elements is exact to within
/// one, and at least one of any 1/fraction elements is selected.
class StratifiedChoice {
 public:
  /// `fraction` must be in [0, 1].
  StratifiedChoice(double fraction, uint64_t key);
  bool next();

 private:
  void start_run();

  double fraction_;
  uint64_t key_;
  int64_t at_ = 0, run_ = 0, chosen_ = 0, run_end_ = 0;
};

/// Assigns documents, in order, to train, validation and test. The result depends only on the
/// fractions, the seed and the document's index.
class Splitter {
 public:
  Splitter(double validation_fraction, double test_fraction, uint64_t seed);
  Split next();

 private:
  StratifiedChoice validation_, test_;
};

}  // namespace lockstep::data
