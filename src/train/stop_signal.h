// SIGTERM and SIGINT ask a run to save and stop.
#pragma once

namespace lockstep::train {

/// Takes over SIGTERM and SIGINT for its lifetime: the first only sets a flag, a second SIGINT ends
/// the process as it would without us. One at a time in a process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace lockstep::train
