// Signals that a run handles. SIGTERM and SIGINT save a checkpoint and stop the run. The actions of
// SIGUSR1 and SIGUSR2 are set by the configuration.
#pragma once

#include "config/core/config.h"

namespace lockstep::train {

/// Handles SIGTERM and SIGINT during its lifetime. The first signal only sets a flag; a second
/// SIGINT ends the process. Ranks that are threads of one process share the handlers.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

/// Handles SIGUSR1 and SIGUSR2 during its lifetime. If ranks are threads of one process, only one
/// of them receives each signal.
class SaveSignals {
 public:
  enum class Asked { kNothing, kSave, kSaveAndStop };

  explicit SaveSignals(const config::CheckpointSection& section);
  ~SaveSignals();
  SaveSignals(const SaveSignals&) = delete;
  SaveSignals& operator=(const SaveSignals&) = delete;

  /// Returns the strongest request received since the last call.
  Asked take();

 private:
  const config::CheckpointSection& section_;
};

}  // namespace lockstep::train
