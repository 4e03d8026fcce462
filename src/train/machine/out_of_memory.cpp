// Converts out-of-memory exceptions.
#include "train/machine/out_of_memory.h"

#include <new>

#include <c10/util/Exception.h>

namespace lockstep::train {
namespace {

constexpr const char* kRemedy =
    "lower training.per_device_train_batch_size (and raise training.gradient_accumulation_steps "
    "to keep the batch), shorten data.sequence_length, or set training.bf16=true";

}  // namespace

std::optional<Error> current_out_of_memory() {
  try {
    throw;
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kOutOfMemory ? std::optional(error) : std::nullopt;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kOutOfMemory, "out of memory", kRemedy);
  } catch (const c10::Error& error) {
    // The CPU allocator does not have its own exception class.
    const std::string text = error.what_without_backtrace();
    const bool is_one = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                        text.find("DefaultCPUAllocator") != std::string::npos;
    return is_one ? std::optional(Error(ErrorKind::kOutOfMemory, text, kRemedy)) : std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace lockstep::train
