// Mixture of several data sources by weight.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::data {

/// Properties of a source that determine the order of a mixture.
struct MixtureSource {
  int64_t sequences = 0;              // number of sequences, at least 1
  double weight = 1;                  // above 0; shares are weights over their sum
  std::optional<int64_t> max_epochs;  // maximum number of passes; nullopt: unlimited
  bool operator==(const MixtureSource&) const = default;
};

/// Order of the samples of all sources in an endless stream. It is the same on every rank. After
/// any n samples, the number of samples from each source differs from its share of n by less than
/// one. Each sample is taken from the source with the earliest deadline, among the sources that
/// would not exceed their share by a whole sample. If several are equal, the first one is used
/// (Baruah, Cohen, Plaxton and Varvel, "Proportionate Progress", 1996). Integer arithmetic gives
/// the same result on all CPUs. A source is removed after max_epochs passes; the others continue
/// with their weights.
class MixtureOrder {
 public:
  struct Sample {
    size_t source = 0;
    int64_t index = 0;  // in the source's own stream: pass * sequences + position
  };

  /// Throws Error (config) if there are no sources, if a source has no sequences, or if a weight is
  /// not above 0.
  explicit MixtureOrder(std::vector<MixtureSource> sources);

  /// Returns the next sample. Throws Error (data) if every source is exhausted.
  Sample next();
  int64_t drawn() const { return drawn_; }
  /// Number of samples drawn from each source.
  const std::vector<int64_t>& taken() const { return taken_; }
  /// Returns the total number of samples that can be drawn. nullopt: unlimited.
  std::optional<int64_t> capacity() const;
  /// Skips samples until drawn() is `position`. Takes as long as the samples between two of the
  /// rarest source, however many are skipped.
  void advance_to(int64_t position);

 private:
  /// Returns the number of samples of each source among the first `drawn` samples of this phase.
  std::vector<int64_t> after(int64_t drawn) const;
  /// Returns the number of samples after which this phase ends, if that is at most `most`.
  std::optional<int64_t> end_of_phase(int64_t most) const;
  /// Skips samples of this phase.
  void skip(int64_t samples);
  /// Maximum number of samples between two samples of a source.
  int64_t longest_gap() const;
  int64_t left_of(size_t source) const;
  bool is_used_up(size_t source) const;
  void begin_phase();

  std::vector<MixtureSource> sources_;
  std::vector<int64_t> units_;  // the weights as integers; 0 if the source is exhausted
  int64_t whole_ = 0;           // their sum
  std::vector<int64_t> taken_, phase_taken_;
  int64_t drawn_ = 0, phase_drawn_ = 0;  // a phase ends when a source is exhausted
};

}  // namespace lockstep::data
