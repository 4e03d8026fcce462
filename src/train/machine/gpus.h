// The GPUs of this process. The program links no CUDA: where liblockstep_cuda.so lies beside it or
// in the library's folders, loading that makes the device known.
#pragma once

#include <filesystem>
#include <string>

#include <c10/core/Device.h>

#include "comm/store.h"

namespace lockstep::train {

/// GPUs that this process may use. Loads liblockstep_cuda.so on the first call, if device files
/// show any. Error (environment): the machine shows GPUs to this process and none of them can be
/// used, so that nobody trains on the CPU without knowing.
int visible_gpus();

/// Whether device files in `devices` (/dev) are GPUs', and `visible` (CUDA_VISIBLE_DEVICES; null:
/// not set) hides not all.
bool shows_gpus(const std::filesystem::path& devices, const char* visible);

/// Index of the GPU of a local rank where `gpus` are visible: its own; or, where one is, that one,
/// for each process may be shown another (`srun --gpus-per-task=1`, slices of a GPU). Error
/// (environment): there is none for it.
int gpu_of(int local_rank, int local_size, int gpus);
/// Where several ranks of a machine see one GPU each, it must not be the same one. Every such rank
/// calls; does not block. `identity`: of a GPU or a slice, unique everywhere. Error (environment):
/// another rank has it.
void claim_gpu(const comm::Store& store, const std::string& identity, int rank);
/// The identity of a visible GPU, as hexadecimal digits.
std::string identity_of_gpu(int index);

/// Ends what NCCL waits for on this process's GPUs; its groups are of no more use.
void abort_collectives();

/// Makes it the device that this thread's operations run on.
void use_device(c10::Device device);

}  // namespace lockstep::train
