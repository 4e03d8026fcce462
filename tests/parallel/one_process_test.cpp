// Tests of data parallelism over several devices in one process.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/format.h"
#include "numbers.h"
#include "parallel/one_process/data_parallel.h"

namespace lockstep {
namespace one_process_test {

using at::Tensor;

torch::nn::Sequential small_module() {
  return torch::nn::Sequential(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 3));
}

std::vector<c10::Device> cpus(size_t count) {
  return std::vector<c10::Device>(count, c10::Device(c10::kCPU));
}

TEST(DataParallel, GivesOutputsAndGradientsOfTheModuleItself) {
  torch::manual_seed(1);
  const Tensor x = torch::randn({5, 5}), target = torch::randn({5, 3});
  // 5 rows: not divisible, and fewer than 8 devices.
  for (const size_t devices : {1U, 2U, 3U, 8U}) {
    auto module = small_module();
    DataParallel parallel(module, cpus(devices));
    auto optimizer = torch::optim::SGD(module->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {  // replicas follow parameter updates
      optimizer.zero_grad();
      const Tensor plain = module->forward(x);
      torch::mse_loss(plain, target).backward();
      std::vector<Tensor> expected;
      for (const Tensor& parameter : module->parameters()) {
        expected.push_back(parameter.grad().clone());
      }
      optimizer.zero_grad();
      const Tensor y = parallel.forward({x});
      numbers::expect_values(y, plain, fmt::format("{} devices", devices));
      torch::mse_loss(y, target).backward();
      for (size_t p = 0; p < expected.size(); ++p) {
        numbers::expect_values(
            module->parameters()[p].grad(),
            expected[p],
            fmt::format("{} devices, parameter {}", devices, p));
      }
      optimizer.step();
    }
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(parallel.forward({x}).requires_grad());
  }
}

TEST(DataParallel, ThrowsWhatAReplicaThrew) {
  const Tensor weight = torch::ones({2}).requires_grad_();
  DataParallel parallel(
      {weight},
      [](c10::Device) {
        return Replica{
            {torch::ones({2}).requires_grad_()}, [](const std::vector<Tensor>& inputs) -> Tensor {
              if (inputs[0][0].item<float>() > 1) {
                throw Error(ErrorKind::kData, "a row that cannot be");
              }
              return inputs[0];
            }};
      },
      cpus(2));
  EXPECT_THROW(parallel.forward({torch::tensor({1.0, 2.0})}), Error);
  EXPECT_THROW(DataParallel(small_module(), {}), Error);
}

}  // namespace one_process_test
}  // namespace lockstep
