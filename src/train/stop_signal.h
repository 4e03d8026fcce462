// Signals that a run handles. SIGTERM and SIGINT save a checkpoint and stop the run. The actions of
// SIGUSR1 and SIGUSR2 are set by the configuration.
#pragma once

#include <memory>

#include "config/core/config.h"

namespace lockstep::train {

/// Handles SIGTERM and SIGINT during its lifetime. The first signal only sets a flag; a second
/// SIGINT ends the process. Ranks that are threads of one process share the handlers.
class StopSignal {
 public:
  enum class Reply { kNone, kLog };
  /// With kLog, a log line acknowledges the first signal immediately, not at the end of the step.
  explicit StopSignal(Reply reply = Reply::kNone);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;

 private:
  class Answerer;
  std::unique_ptr<Answerer> answerer_;
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

  /// Returns the strongest request since the last take().
  Asked asked() const;
  /// As asked(), and forgets the requests.
  Asked take();

 private:
  Asked strongest(bool usr1, bool usr2) const;

  const config::CheckpointSection& section_;
};

}  // namespace lockstep::train
