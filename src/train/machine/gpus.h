// GPUs of this process. The program does not link CUDA. It loads liblockstep_cuda.so, which
// registers the device, from its own folder or the library path.
#pragma once

#include <filesystem>
#include <string>

#include <c10/core/Device.h>

#include "comm/store.h"

namespace lockstep::train {

/// Returns the number of GPUs that this process may use. The first call loads liblockstep_cuda.so
/// if device files indicate GPUs. Throws Error (environment) if GPUs are visible but none can be
/// used, so that a run never falls back to the CPU silently.
int visible_gpus();

/// Returns true if `devices` (/dev) contains device files of GPUs and `visible`
/// (CUDA_VISIBLE_DEVICES; null: not set) does not hide all of them.
bool shows_gpus(const std::filesystem::path& devices, const char* visible);

/// Returns the GPU index of a local rank if `gpus` are visible: the local rank itself, or 0 if only
/// one is visible, because a scheduler may show each process a different GPU (`srun
/// --gpus-per-task=1`, MIG slices). Throws Error (environment) if there is no GPU for the rank.
int gpu_of(int local_rank, int local_size, int gpus);
/// Verifies that ranks of a node that see one GPU each do not share it. Every such rank calls; does
/// not block. `identity` identifies a GPU or a slice globally. Throws Error (environment) if
/// another rank has it.
void claim_gpu(const comm::Store& store, const std::string& identity, int rank);
/// Returns the UUID of a visible GPU as hexadecimal digits.
std::string identity_of_gpu(int index);

/// Aborts pending NCCL operations on this process's GPUs. Its process groups cannot be used
/// afterwards.
void abort_collectives();

/// Makes `device` the current device of this thread.
void use_device(c10::Device device);

}  // namespace lockstep::train
