// Samples of several sources, by weights.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::data {

/// What the draws of a mixture depend on, of one source.
struct MixtureSource {
  int64_t sequences = 0;              // that it has, at least 1
  double weight = 1;                  // above 0; shares are weights over their sum
  std::optional<int64_t> max_epochs;  // how often it is read at most; null: as often as it comes
  bool operator==(const MixtureSource&) const = default;
};

/// Which source each sample of an endless stream is of: the same on every rank. After any n samples
/// each source has given its share of n to within one sample. Of the sources that may take the next
/// sample without getting ahead of their share by a whole one, it goes to the one that would fall
/// behind by one the soonest, and of equals to the first (Baruah, Cohen, Plaxton and Varvel,
/// "Proportionate Progress", 1996; integers alone, so all processors agree). A source that was read
/// max_epochs times leaves, and from there on the rest share by their weights.
class MixtureOrder {
 public:
  struct Sample {
    size_t source = 0;
    int64_t index = 0;  // of the source's own stream: pass * sequences + position
  };

  /// Error (kConfig): no source, a source without sequences, a weight that is not above 0.
  explicit MixtureOrder(std::vector<MixtureSource> sources);

  /// Error (kData) where every source is used up.
  Sample next();
  int64_t drawn() const { return drawn_; }
  /// Samples that were drawn of each source.
  const std::vector<int64_t>& taken() const { return taken_; }
  /// How many can be drawn, all in all; nothing: any number.
  std::optional<int64_t> capacity() const;
  /// Draws without a result, until drawn() is `position`. Costs some nanoseconds a source and
  /// sample.
  void advance_to(int64_t position);

 private:
  bool is_used_up(size_t source) const;
  void begin_phase();

  std::vector<MixtureSource> sources_;
  std::vector<int64_t> units_;  // the weights as integers; 0: it has left
  int64_t whole_ = 0;           // their sum
  std::vector<int64_t> taken_, phase_taken_;
  int64_t drawn_ = 0, phase_drawn_ = 0;  // a phase: until the next source leaves
};

}  // namespace lockstep::data
