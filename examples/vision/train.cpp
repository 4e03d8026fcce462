// Trains a small convolutional network on generated images. The network itself has no notion of
// ranks.
//   lockstep launch --nproc-per-node 2 ./build/vision [OUTPUT_FOLDER]
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/record.h>
#include <lockstep/library/distributed_data_parallel.h>
#include <lockstep/library/distributed_sampler.h>
#include <lockstep/library/join.h>
#include <lockstep/library/module_checkpoint.h>
#include <lockstep/monitor/metrics.h>
#include <lockstep/ops/activations.h>
#include <torch/torch.h>

namespace {

constexpr int64_t kImages = 256, kSide = 12, kKinds = 4, kBatch = 32, kEpochs = 3;

/// Images of noise with a bright bar. The four classes are vertical or horizontal, in the first or
/// the second half.
struct Bars : torch::data::Dataset<Bars> {
  torch::data::Example<> get(size_t index) override {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(index);
    auto image = torch::empty({1, kSide, kSide}).normal_(0, 0.5, generator);
    const auto kind = static_cast<int64_t>(index) % kKinds;
    const int64_t place = kind / 2 * kSide / 2 + static_cast<int64_t>(index) / kKinds % (kSide / 2);
    image.select(1 + kind % 2, place).add_(2);
    return {image, torch::tensor(kind)};
  }
  std::optional<size_t> size() const override { return kImages; }
};

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    const auto x = lockstep::ops::gelu_tanh(first(images));                    // [B, 8, 12, 12]
    const auto y = lockstep::ops::gelu_tanh(second(torch::max_pool2d(x, 2)));  // [B, 8, 6, 6]
    return last(y.flatten(1));
  }
  torch::nn::Conv2d first =
      register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
  torch::nn::Conv2d second =
      register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8 * 6 * 6, kKinds));
};
TORCH_MODULE(Net);

int train(int argc, char** argv) {
  const std::filesystem::path output = argc > 1 ? argv[1] : "run";
  lockstep::train::RankContext world = lockstep::join();
  auto& ranks = world.communicator;
  torch::manual_seed(1);
  Net net;
  net->to(world.device);
  lockstep::DistributedDataParallel parallel(net.ptr(), ranks);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  lockstep::DistributedSampler sampler(kImages, {.rank = world.rank(), .ranks = world.size()});
  int64_t step = 0;
  if (const auto saved = lockstep::checkpoint::latest_checkpoint(output, ranks)) {
    sampler.go_on(std::stoll(lockstep::load_module(*saved, {*net, &optimizer})), 0);
    step = *lockstep::checkpoint::checkpoint_step(saved->folder());
  }
  int64_t epoch = sampler.epoch();
  auto loader = torch::data::make_data_loader(
      Bars().map(torch::data::transforms::Stack<>()), std::move(sampler), kBatch / world.size());
  std::unique_ptr<lockstep::monitor::MetricsFile> metrics;
  if (world.is_first()) {
    std::filesystem::create_directories(output);
    metrics = std::make_unique<lockstep::monitor::MetricsFile>(output / "metrics.jsonl", step);
  }
  for (; epoch < kEpochs; ++epoch) {
    for (const auto& [images, kinds] : *loader) {
      lockstep::launch::set_recorded_step(++step);
      const auto y = net->forward(images.to(world.device));
      const auto loss = torch::cross_entropy_loss(y, kinds.to(world.device));
      parallel.backward(loss);
      optimizer.step();
      const auto mean = loss.detach() / world.size();
      ranks.all_reduce(mean).wait();
      if (metrics != nullptr) {
        lockstep::log_info("step {}: loss {:.4f}", step, mean.item<double>());
        metrics->log({.step = step, .values = {{"loss", mean.item<double>()}}});
      }
    }
    const auto folder = lockstep::checkpoint::checkpoint_folder(output, step);
    lockstep::save_module(folder, {*net, &optimizer}, std::to_string(epoch + 1), ranks);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::launch::record(argc, argv, train);
}
