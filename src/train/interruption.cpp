// Exchange of signals between the batches of an evaluation.
#include "train/interruption.h"

#include <ATen/ops/tensor.h>

#include "base/format.h"
#include "train/job.h"

namespace lockstep::train {

void Interruption::check() {
  using Asked = SaveSignals::Asked;
  const Asked own = stop_.requested() ? Asked::kSaveAndStop : save_.asked();
  const at::Tensor asking = at::tensor(
      {own == Asked::kSaveAndStop ? 1.0 : 0.0, own == Asked::kSave && !ignores_saves_ ? 1.0 : 0.0},
      at::kDouble);
  communicator_.all_reduce(asking).wait();
  const auto* ranks = asking.const_data_ptr<double>();
  if (ranks[0] == 0 && ranks[1] == 0) {
    return;
  }
  save_.take();  // answered by the end of the evaluation
  throw Interrupted{ranks[0] > 0 ? Asked::kSaveAndStop : Asked::kSave};
}

std::function<void(int64_t done, int64_t all)> between_batches(Job& job) {
  return [&job](int64_t done, int64_t all) {
    if (job.monitor != nullptr) {
      job.monitor->activity(fmt::format("evaluating {}/{}", done, all));
    }
    if (job.interruption != nullptr) {
      job.interruption->check();
    }
  };
}

SaveSignals::Asked interrupted_by(const std::function<void()>& body) {
  try {
    body();
    return SaveSignals::Asked::kNothing;
  } catch (const Interrupted& interrupted) {
    return interrupted.asked;
  }
}

}  // namespace lockstep::train
