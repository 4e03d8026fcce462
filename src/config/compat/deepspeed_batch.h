// Conversion of DeepSpeed's batch triple to configuration keys.
#pragma once

#include "config/compat/deepspeed.h"

namespace lockstep::config {

/// Completes train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x
/// data-parallel ranks as DeepSpeed does. A mismatch is a problem that shows all four numbers. Adds
/// per_device_train_batch_size and gradient_accumulation_steps to `settings`.
void add_deepspeed_batch(const Value& file, const DeepspeedContext& context, Value& settings);

}  // namespace lockstep::config
