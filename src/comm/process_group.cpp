// Creates c10d process groups. This is the only file that includes gloo's headers (Debian's
// libgloo-dev; the code is in libtorch). It instantiates no gloo types: devices come from c10d's
// factory.
#include "comm/process_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/error.h"
#include "base/format.h"
#include "comm/moving.h"
#include "comm/shared_memory.h"

namespace lockstep::comm {
namespace {

BackendFactory& nccl_factory() {
  static BackendFactory factory;
  return factory;
}
BackendFactory& host_factory() {
  static BackendFactory factory;
  return factory;
}

c10::intrusive_ptr<c10d::Backend> join_gloo(
    const Store& store, int rank, int size, const GroupOptions& options) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  if (!options.interface.empty()) {
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(options.interface));
  } else if (!options.host.empty()) {
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.host));
  } else {
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  }
  c10::intrusive_ptr<c10d::Backend> group;
  watch_sockets_of(
      [&] { group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo); });
  return group;
}

void set_host_backend(
    c10d::ProcessGroup& group,
    const Store& store,
    int rank,
    int size,
    const GroupOptions& options) {
  using Type = c10d::ProcessGroup::BackendType;
  if (host_factory()) {
    group.setBackend(c10::kCPU, Type::CUSTOM, host_factory()(store, rank, size, options));
    group.setDefaultBackend(Type::CUSTOM);
    return;
  }
  std::unique_ptr<SharedBoard> board;
  if (options.shared_memory) {
    board = SharedBoard::join(store, rank, size);
  }
  if (board != nullptr) {
    group.setBackend(
        c10::kCPU,
        Type::CUSTOM,
        c10::make_intrusive<SharedMemoryBackend>(std::move(board), options));
    group.setDefaultBackend(Type::CUSTOM);
  } else {
    group.setBackend(c10::kCPU, Type::GLOO, join_gloo(store, rank, size, options));
    group.setDefaultBackend(Type::GLOO);
  }
}

}  // namespace

void set_nccl_factory(BackendFactory factory) {
  nccl_factory() = std::move(factory);
}

void set_host_factory(BackendFactory factory) {
  host_factory() = std::move(factory);
}

bool is_ordered(const ProcessGroup& group, c10::DeviceType device) {
  return group != nullptr && group->getBackend(device)->supportsCoalescing();
}

ProcessGroup join_group(const Store& store, int rank, int size, const GroupOptions& options) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  try {
    const bool only_on_device = options.only_on_device && options.device.is_cuda();
    if (!only_on_device) {
      set_host_backend(*group, store, rank, size, options);
    }
    if (options.device.is_cuda()) {
      if (!nccl_factory()) {
        throw Error(
            ErrorKind::kEnvironment,
            "NCCL is not available: liblockstep_cuda.so is not loaded",
            "build with LOCKSTEP_CUDA=1");
      }
      group->setBackend(
          c10::kCUDA,
          c10d::ProcessGroup::BackendType::NCCL,
          nccl_factory()(store, rank, size, options));
      if (only_on_device) {
        group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
      }
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error(
        ErrorKind::kPeerLost,
        fmt::format(
            "rank {} could not connect to the other {} ranks: {}",
            rank,
            size - 1,
            text.substr(0, text.find('\n'))),
        "look at the first rank that failed; check the network interface (GLOO_SOCKET_IFNAME)");
  }
  return group;
}

}  // namespace lockstep::comm
