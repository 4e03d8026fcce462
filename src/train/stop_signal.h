// Signals to a run: SIGTERM and SIGINT ask it to save and stop, SIGUSR1 and SIGUSR2 for what the
// configuration says.
#pragma once

#include "config/core/config.h"

namespace lockstep::train {

/// Takes over SIGTERM and SIGINT for its lifetime: the first only sets a flag, a second SIGINT ends
/// the process as it would without us. Ranks that are threads of one process share it.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

/// Takes over SIGUSR1 and SIGUSR2 for its lifetime. Of ranks that are threads of one process, one
/// is told of each.
class SaveSignals {
 public:
  enum class Asked { kNothing, kSave, kSaveAndStop };

  explicit SaveSignals(const config::CheckpointSection& section);
  ~SaveSignals();
  SaveSignals(const SaveSignals&) = delete;
  SaveSignals& operator=(const SaveSignals&) = delete;

  /// The most that was asked for since the last call.
  Asked take();

 private:
  const config::CheckpointSection& section_;
};

}  // namespace lockstep::train
