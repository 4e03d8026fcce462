// Small programs (plants NAME), each with one ordering defect between streams or ranks, and
// variants without it. tests/program/test_null_gpu.py checks the null GPU's reports.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int64_t kSize = 1 << 20;

at::Tensor on_gpu() {
  return at::zeros({kSize}, at::TensorOptions().device(at::kCUDA));
}

c10::cuda::CUDAStream other_stream() {
  static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  return stream;
}

void wait(c10::cuda::CUDAStream waiting, c10::cuda::CUDAStream awaited) {
  at::cuda::CUDAEvent event;
  event.record(awaited);
  event.block(waiting);
}

/// One stream reads data that another stream writes.
void read(bool waits) {
  at::Tensor tensor = on_gpu();
  const auto main = c10::cuda::getCurrentCUDAStream();
  wait(other_stream(), main);
  {
    const c10::cuda::CUDAStreamGuard guard(other_stream());
    tensor.add_(1);
  }
  if (waits) {
    wait(main, other_stream());
  }
  const at::Tensor twice = tensor * 2;
  c10::cuda::device_synchronize();
}

/// A copy writes one part of a buffer while the other part, or the same part, is read.
void copy(bool is_apart) {
  at::Tensor tensor = on_gpu(), source = on_gpu();
  wait(other_stream(), c10::cuda::getCurrentCUDAStream());
  {
    const c10::cuda::CUDAStreamGuard guard(other_stream());
    tensor.narrow(0, 0, kSize / 2).copy_(source.narrow(0, 0, kSize / 2));
  }
  const at::Tensor twice = tensor.narrow(0, is_apart ? kSize / 2 : kSize / 4, kSize / 4) * 2;
  c10::cuda::device_synchronize();
}

/// One stream writes data that another stream reads.
void write(bool waits) {
  at::Tensor tensor = on_gpu();
  const auto main = c10::cuda::getCurrentCUDAStream();
  wait(other_stream(), main);
  at::Tensor twice;
  {
    const c10::cuda::CUDAStreamGuard guard(other_stream());
    twice = tensor * 2;
  }
  if (waits) {
    wait(main, other_stream());
  }
  tensor.zero_();
  c10::cuda::device_synchronize();
}

/// Memory that another stream reads is freed and reused.
void free(bool is_recorded) {
  const auto main = c10::cuda::getCurrentCUDAStream();
  at::Tensor twice;
  {
    at::Tensor tensor = on_gpu();
    wait(other_stream(), main);
    {
      const c10::cuda::CUDAStreamGuard guard(other_stream());
      twice = tensor * 2;
    }
    if (is_recorded) {
      tensor.record_stream(other_stream().unwrap());
    }
  }
  const at::Tensor next = at::empty({kSize}, at::TensorOptions().device(at::kCUDA));
  c10::cuda::device_synchronize();
}

struct Rank {
  int number = 0;
  ncclComm_t first = nullptr, second = nullptr;
};

// Call sites that the reports name.
[[gnu::noinline]] void add_up(ncclComm_t communicator) {
  const at::Tensor sum = on_gpu();
  const auto stream = c10::cuda::getCurrentCUDAStream();
  ncclAllReduce(sum.data_ptr(), sum.data_ptr(), kSize, ncclFloat32, ncclSum, communicator, stream);
  c10::cuda::device_synchronize();
}
[[gnu::noinline]] void send_round(ncclComm_t communicator) {
  const at::Tensor values = on_gpu();
  const auto stream = c10::cuda::getCurrentCUDAStream();
  ncclBroadcast(values.data_ptr(), values.data_ptr(), kSize, ncclFloat32, 0, communicator, stream);
  c10::cuda::device_synchronize();
}

/// Runs two processes, each with a device, and two communicators of both. Returns the first nonzero
/// exit code.
int on_two_ranks(const std::function<void(const Rank&)>& body) {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) {
    ncclGetUniqueId(&id);
  }
  pid_t others[2];
  for (int number = 0; number < 2; ++number) {
    others[number] = ::fork();
    if (others[number] == 0) {
      ::setenv("RANK", std::to_string(number).c_str(), 1);
      c10::cuda::set_device(static_cast<c10::DeviceIndex>(number));
      Rank rank{number};
      ncclCommInitRank(&rank.first, 2, ids[0], number);
      ncclCommInitRank(&rank.second, 2, ids[1], number);
      body(rank);
      std::exit(0);
    }
  }
  int code = 0;
  for (const pid_t other : others) {
    int status = 0;
    ::waitpid(other, &status, 0);
    code = code == 0 ? WEXITSTATUS(status) : code;
  }
  return code;
}

int alike() {
  return on_two_ranks([](const Rank& rank) {
    add_up(rank.first);
    send_round(rank.second);
  });
}
int unlike() {
  return on_two_ranks(
      [](const Rank& rank) { (rank.number == 0 ? add_up : send_round)(rank.first); });
}
/// Each rank waits in the communicator that the other rank joins later.
int crossed() {
  return on_two_ranks([](const Rank& rank) {
    (rank.number == 0 ? add_up : send_round)(rank.number == 0 ? rank.first : rank.second);
    (rank.number == 0 ? send_round : add_up)(rank.number == 0 ? rank.second : rank.first);
  });
}

}  // namespace

int main(int count, char** words) {
  const auto one = [](void (*plant)(bool), bool is_right) {
    return [=] {
      plant(is_right);
      return 0;
    };
  };
  const std::map<std::string, std::function<int()>> plants = {
      {"read-before-wait", one(read, false)},
      {"read-after-wait", one(read, true)},
      {"copy-before-wait", one(copy, false)},
      {"copy-apart", one(copy, true)},
      {"write-before-wait", one(write, false)},
      {"write-after-wait", one(write, true)},
      {"free-before-done", one(free, false)},
      {"free-recorded", one(free, true)},
      {"ranks-alike", alike},
      {"ranks-unlike", unlike},
      {"ranks-crossed", crossed},
  };
  const auto found = plants.find(count > 1 ? words[1] : "");
  if (found == plants.end()) {
    std::fprintf(stderr, "plants NAME\n");
    return 2;
  }
  return found->second();
}
