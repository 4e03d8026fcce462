// Selects streams per local rank in torchrun's syntax: "3", or "0:1,12:3".
#pragma once

#include <map>
#include <string>

namespace lockstep::launch {

/// Bit 1 selects stdout, bit 2 stderr.
struct Streams {
  bool output = false, error_output = false;
};

class StdSpec {
 public:
  StdSpec() = default;
  /// Parses "0" to "3" for all ranks, or "RANK:0-3,..." for some ranks. Throws Error (config) with
  /// the option's name for other strings.
  static StdSpec parse(const std::string& text, const std::string& option);
  Streams of(int local_rank) const;
  bool any() const { return all_ != 0 || !some_.empty(); }

 private:
  int all_ = 0;
  std::map<int, int> some_;
};

}  // namespace lockstep::launch
