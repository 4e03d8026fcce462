#include "train/world.h"

#include <csignal>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "ops/cuda_loops.h"

namespace lockstep::train {
namespace {

/// The program links no CUDA. Where a library with it lies beside the program, loading it makes the
/// device known.
void load_cuda() {
  static const bool loaded = [] {
    void* library = ::dlopen("liblockstep_cuda.so", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      log_debug("no CUDA: {}", ::dlerror());
      return false;
    }
    using Register = void (*)(void (*)(comm::NcclFactory), void (*)(const ops::CudaLoops& loops));
    const auto entry = reinterpret_cast<Register>(::dlsym(library, "lockstep_cuda_register"));
    if (entry == nullptr) {
      throw Error(
          ErrorKind::kEnvironment,
          fmt::format("liblockstep_cuda.so is not of this program: {}", ::dlerror()),
          "build both anew with LOCKSTEP_CUDA=1 make build");
    }
    entry(comm::set_nccl_factory, ops::set_cuda_loops);
    return true;
  }();
  (void)loaded;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

}  // namespace

int visible_gpus() {
  load_cuda();
  return at::detail::getCUDAHooks().hasCUDA()
             ? static_cast<int>(at::detail::getCUDAHooks().deviceCount())
             : 0;
}

std::string on_first_rank(
    comm::Communicator& communicator, const std::function<std::string()>& body) {
  if (communicator.size() == 1) {
    return body();
  }
  std::string answer;
  std::exception_ptr failure;
  if (communicator.rank() == 0) {
    try {
      answer = "+" + body();
    } catch (const Error& error) {
      failure = std::current_exception();
      answer = fmt::format(
          "-{}{}", static_cast<char>('A' + static_cast<int>(error.kind())), error.what());
    } catch (const std::exception& error) {
      failure = std::current_exception();
      answer = fmt::format("-{}{}", 'A', error.what());
    }
  }
  answer = comm::broadcast_string(communicator, answer);
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
  if (answer.starts_with('-')) {
    throw Error(static_cast<ErrorKind>(answer.at(1) - 'A'), "rank 0: " + answer.substr(2));
  }
  return answer.substr(1);
}

void use_device(c10::Device device) {
  if (device.is_cuda()) {
    c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
  }
}

World join_world(const WorldOptions& options) {
  const int gpus = options.use_cpu ? 0 : visible_gpus();
  if (gpus > 0 && options.local_rank >= gpus) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "local rank {} has no GPU: {} are visible, {} ranks run on this machine",
            options.local_rank,
            gpus,
            options.local_size),
        "start as many ranks as there are GPUs, show more with CUDA_VISIBLE_DEVICES, or set "
        "training.use_cpu=true");
  }
  const c10::Device device =
      gpus > 0 ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(options.local_rank))
               : c10::Device(c10::kCPU);
  use_device(device);
  const comm::Rendezvous& rendezvous = options.rendezvous;
  if (rendezvous.size == 1) {
    return {{}, comm::Communicator::alone(), {}, device, options.local_rank, options.local_size};
  }
  // Gloo writes to sockets without MSG_NOSIGNAL: a peer that is gone is to be an error, not our
  // end.
  std::signal(SIGPIPE, SIG_IGN);
  const comm::Store store = comm::join_store(rendezvous);
  comm::GroupOptions group;
  group.device = device;
  group.timeout = options.timeout;
  group.interface = options.gloo_interface;
  group.shared_memory = options.shared_memory;
  group.host = is_loopback(rendezvous.address) ? "127.0.0.1" : "";
  comm::Communicator communicator(
      comm::join_group(comm::with_prefix("world", store), rendezvous.rank, rendezvous.size, group));
  return {store, std::move(communicator), group, device, options.local_rank, options.local_size};
}

}  // namespace lockstep::train
