// Mixture of several data sources by weight.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::data {

/// Parameters of one source that determine the draws of a mixture.
struct MixtureSource {
  int64_t sequences = 0;              // number of sequences, at least 1
  double weight = 1;                  // above 0; shares are weights over their sum
  std::optional<int64_t> max_epochs;  // maximum number of passes; nullopt: unlimited
  bool operator==(const MixtureSource&) const = default;
};

/// The source of each sample of an endless stream: the same on every rank. After any n samples each
/// source has its share of n to within one sample. Among the sources that may take the next sample
/// without exceeding their share by a whole one, it goes to the one with the earliest deadline, and
/// of equals to the first (Baruah, Cohen, Plaxton and Varvel, "Proportionate Progress", 1996;
/// integer arithmetic, so all CPUs agree). A source that was read max_epochs times leaves, and the
/// rest share by their weights.
class MixtureOrder {
 public:
  struct Sample {
    size_t source = 0;
    int64_t index = 0;  // of the source's own stream: pass * sequences + position
  };

  /// Error (kConfig): no source, a source without sequences, a weight that is not above 0.
  explicit MixtureOrder(std::vector<MixtureSource> sources);

  /// Throws Error (kData) if every source is exhausted.
  Sample next();
  int64_t drawn() const { return drawn_; }
  /// Samples that were drawn of each source.
  const std::vector<int64_t>& taken() const { return taken_; }
  /// Total number of samples that can be drawn; nullopt: unlimited.
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
