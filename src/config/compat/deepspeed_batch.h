// DeepSpeed's batch triple.
#pragma once

#include "config/compat/deepspeed.h"

namespace lockstep::config {

/// train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel
/// ranks: completes what is missing as DeepSpeed does, checks what is given (a mismatch is a
/// problem that prints the four numbers), and adds per_device_train_batch_size and
/// gradient_accumulation_steps to `settings`.
void add_deepspeed_batch(const Value& file, const DeepspeedContext& context, Value& settings);

}  // namespace lockstep::config
