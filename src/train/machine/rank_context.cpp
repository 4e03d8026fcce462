// Initializes a rank: device, threads and communicator.
#include "train/machine/rank_context.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <ATen/Parallel.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/format.h"

namespace lockstep::train {
namespace {

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

}  // namespace

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

void keep_threads_within_quota(int processes) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr && quota_bounds_cpus()) {
    at::set_num_threads(
        std::max(1, usable_cores() / processes));  // libtorch's default is the number of CPUs
  }
}

RankContext join_world(const WorldOptions& options) {
  const int gpus = options.use_cpu ? 0 : visible_gpus();
  const int index = gpus > 0 ? gpu_of(options.local_rank, options.local_size, gpus) : 0;
  const c10::Device device = gpus > 0
                                 ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index))
                                 : c10::Device(c10::kCPU);
  use_device(device);
  keep_threads_within_quota(options.local_size);
  const comm::Rendezvous& rendezvous = options.rendezvous;
  if (rendezvous.size == 1) {
    return {{}, comm::Communicator::alone(), {}, device, options.local_rank, options.local_size};
  }
  // Gloo writes to sockets without MSG_NOSIGNAL. If a peer is lost, the write should fail with an
  // error instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
  const comm::Store store = comm::join_store(rendezvous);
  if (gpus == 1 && options.local_size > 1) {
    claim_gpu(store, identity_of_gpu(index), rendezvous.rank);
  }
  comm::GroupOptions group;
  group.device = device;
  group.timeout = options.timeout;
  group.interface = options.gloo_interface;
  group.shared_memory = options.shared_memory;
  group.host = is_loopback(rendezvous.address) ? "127.0.0.1" : "";
  comm::Communicator communicator(
      comm::join_group(comm::with_prefix("world", store), rendezvous.rank, rendezvous.size, group),
      group);
  RankContext rank_context{
      store, std::move(communicator), group, device, options.local_rank, options.local_size};
  if (device.is_cuda()) {
    rank_context.heartbeat = std::make_unique<comm::Heartbeat>(
        store, rendezvous.rank, rendezvous.size, comm::Heartbeat::Options{}, abort_collectives);
  }
  return rank_context;
}

}  // namespace lockstep::train
