// Which documents are held out.
#pragma once

#include <cstdint>

namespace lockstep::data {

enum class Split { kTrain, kValidation, kTest };

/// Chooses `fraction` of a stream of things: one of each run of 1/fraction, at a place drawn by
/// `key`. So the share is exact to one, and a stream of at least 1/fraction things has one chosen.
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

/// Deals documents, in their order, to train, validation and test. Depends on fractions, seed and a
/// document's number alone.
class Splitter {
 public:
  Splitter(double validation_fraction, double test_fraction, uint64_t seed);
  Split next();

 private:
  StratifiedChoice validation_, test_;
};

}  // namespace lockstep::data
