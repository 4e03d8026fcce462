// Data-parallel training in ten lines, the example of the README. It runs on two ranks, which are
// threads here.
#include <span>

#include <torch/torch.h>

#include "base/log.h"
#include "comm/threads.h"
#include "nn/initialize.h"
#include "parallel/parallelize.h"

using namespace lockstep;
void train(comm::Communicator& ranks, std::span<const nn::ForwardInputs> batches, int64_t targets) {
  auto model = nn::make_model(model::preset("gpt2-tiny"), at::kFloat, at::kCPU);
  nn::initialize(*model, /*seed=*/1);
  parallel::ParallelGroups axes(ranks, {.data = ranks.size()});
  auto trained = parallel::parallelize(std::move(model), {}, axes);  // same weights on every rank
  for (int step = 0; step < 10; ++step) {
    log_info("loss {}", trained->forward_backward(batches, targets).loss);  // mean over all ranks
    trained->optimizer_step(/*learning_rate=*/1e-3);
  }
}

int main() {
  comm::run_ranks(2, [](comm::Communicator& ranks) {
    nn::ForwardInputs inputs;
    inputs.ids = torch::arange(2 * 32).view({2, 32}) + 64 * ranks.rank();
    inputs.targets = nn::next_tokens(inputs.ids);
    inputs.samples = torch::arange(2) + 2 * ranks.rank();
    train(ranks, {&inputs, 1}, /*targets=*/2 * 2 * 31);
  });
}
