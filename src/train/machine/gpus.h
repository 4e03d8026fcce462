// GPUs of this process. The program does not link CUDA. It loads liblockstep_cuda.so, which
// registers the CUDA device, from its own folder or from the library path.
#pragma once

#include <filesystem>
#include <string>

#include <c10/core/Device.h>

#include "comm/store.h"

namespace lockstep::train {

/// Returns the number of GPUs that this process may use. The first call loads liblockstep_cuda.so
/// if there are device files of GPUs. Throws Error (environment) if GPUs are visible but cannot be
/// used, so that a run never falls back to the CPU silently.
int visible_gpus();

/// Returns true if the folder `devices` (/dev) contains device files of GPUs, unless `visible`
/// hides all of them. `visible` is the value of CUDA_VISIBLE_DEVICES, or null if it is not set.
bool shows_gpus(const std::filesystem::path& devices, const char* visible);

/// Returns the index of a local rank's GPU, of `gpus` visible ones. This is the local rank itself,
/// or 0 if only one GPU is visible, because a scheduler may show each process a different GPU
/// (`srun --gpus-per-task=1`, MIG slices). Throws Error (environment) if there is no GPU for the
/// rank.
int gpu_of(int local_rank, int local_size, int gpus);
/// Verifies that no two ranks use the same GPU. Must be called on each rank whose process sees only
/// one GPU. Does not block. `identity` is a globally unique identifier of the GPU or slice. Throws
/// Error (environment) if another rank uses it.
void claim_gpu(const comm::Store& store, const std::string& identity, int rank);
/// Returns the UUID of a visible GPU as hexadecimal digits.
std::string identity_of_gpu(int index);

/// Aborts pending NCCL operations on this process's GPUs. Afterwards the process groups cannot be
/// used.
void abort_collectives();

/// Makes `device` the current device of this thread.
void use_device(c10::Device device);

}  // namespace lockstep::train
