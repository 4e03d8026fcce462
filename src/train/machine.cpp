#include "train/machine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/format.h"
#include "model/model_config.h"
#include "nn/initialize.h"
#include "nn/language_model.h"
#include "ops/adamw.h"
#include "train/planned_job.h"

namespace lockstep::train {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Measurer {
 public:
  Measurer(comm::Communicator& communicator, double seconds)
      : communicator_(communicator),
        seconds_(seconds) {}

  // As many runs on every rank: `body` may hold a collective.
  double best_of(const std::function<void()>& body) {
    body();
    communicator_.barrier();
    const double start = seconds_now();
    body();
    const double once = slowest(seconds_now() - start);
    const int runs = static_cast<int>(std::clamp(seconds_ / std::max(once, 1e-9), 2.0, 1000.0));
    double best = once;
    for (int run = 0; run < runs; ++run) {
      const double began = seconds_now();
      body();
      best = std::min(best, seconds_now() - began);
    }
    return slowest(best);
  }

 private:
  double slowest(double seconds) {
    at::Tensor most = at::full({1}, seconds, at::kDouble);
    communicator_.all_reduce(most, comm::Reduce::kMax).wait();
    return most.item<double>();
  }

  comm::Communicator& communicator_;
  double seconds_;
};

std::vector<plan::ProductSample> measure_products(Measurer& measurer, at::ScalarType type) {
  constexpr std::array<std::array<int64_t, 3>, 10> kShapes{
      {{64, 256, 256},
       {256, 256, 256},
       {1024, 256, 256},
       {1024, 768, 256},
       {1024, 1024, 256},
       {1024, 256, 1024},
       {256, 1024, 1024},
       {1024, 1024, 1024},
       {1024, 4096, 256},
       {256, 256, 4096}}};
  std::vector<plan::ProductSample> samples;
  for (const auto& [m, n, k] : kShapes) {
    const at::Tensor a = at::ones({m, k}, type);
    const at::Tensor b = at::ones({n, k}, type).t();
    at::Tensor out = at::empty({m, n}, type);
    const double seconds = measurer.best_of([&, &out = out] { at::mm_out(out, a, b); });
    samples.push_back(
        {static_cast<double>(m), static_cast<double>(n), static_cast<double>(k), seconds});
  }
  return samples;
}

struct Pass {
  const char* family;
  int64_t layers, width, vocabulary, length, rows;
  double dropout;
};

// Each differs from the first in one thing: the vocabulary, the layers, the length, the tokens,
// dropout, the width, the family.
constexpr std::array<Pass, 8> kPasses{
    {{"gpt2", 1, 256, 2048, 128, 8, 0},
     {"gpt2", 1, 256, 32768, 128, 8, 0},
     {"gpt2", 4, 256, 2048, 128, 8, 0},
     {"gpt2", 4, 256, 2048, 512, 2, 0},
     {"gpt2", 4, 256, 2048, 128, 1, 0},
     {"gpt2", 4, 256, 2048, 256, 4, 0.1},
     {"gpt2", 4, 128, 2048, 256, 4, 0},
     {"llama", 4, 256, 2048, 256, 4, 0}}};

model::ModelConfig config_of(const Pass& pass) {
  const int64_t heads = pass.width / 64;
  const std::string text =
      std::string(pass.family) == "gpt2"
          ? fmt::format(
                R"({{"model_type": "gpt2", "vocab_size": {}, "n_positions": {}, "n_embd": {}, "n_layer": {},
"n_head": {}, "activation_function": "gelu_new", "resid_pdrop": {}, "embd_pdrop": {}, "attn_pdrop": {}}})",
                pass.vocabulary,
                pass.length,
                pass.width,
                pass.layers,
                heads,
                pass.dropout,
                pass.dropout,
                pass.dropout)
          : fmt::format(
                R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "max_position_embeddings": {}, "tie_word_embeddings": true}})",
                pass.vocabulary,
                pass.width,
                3 * pass.width,
                pass.layers,
                heads,
                pass.length);
  return model::parse_model_config(text, "a model to measure with");
}

plan::PassSample measure_pass(Measurer& measurer, const Pass& pass, at::ScalarType type) {
  plan::PassSample sample;
  plan::Job& job = sample.job;
  job.model = config_of(pass);
  job.sequence = pass.length;
  job.micro_batch = job.global_batch = pass.rows;
  job.precision = type == at::kFloat ? plan::Precision::kFloat32 : plan::Precision::kMixed16;
  job.software = our_software(job.model, job.precision);
  const auto model = nn::make_model(job.model, type, at::kCPU);
  nn::initialize(*model, 1);
  nn::ForwardInputs inputs;
  inputs.ids = at::arange(pass.rows * pass.length, at::kLong)
                   .remainder(pass.vocabulary)
                   .reshape({pass.rows, pass.length});
  inputs.labels = inputs.ids;
  inputs.samples = at::arange(pass.rows, at::kLong);
  inputs.training = true;
  sample.seconds = measurer.best_of([&] { torch::autograd::backward({model->loss(inputs)}, {}); });
  return sample;
}

double update_bandwidth(Measurer& measurer, double bytes_of_parameter) {
  constexpr int64_t kCount = 1 << 22;
  const auto zeros = [](at::ScalarType type) { return at::zeros({kCount}, type); };
  const ops::AdamWBuffers buffers{
      .parameter = zeros(at::kBFloat16),
      .master = zeros(at::kFloat),
      .gradient = zeros(at::kBFloat16),
      .exp_avg = zeros(at::kFloat),
      .exp_avg_sq = zeros(at::kFloat)};
  const double seconds = measurer.best_of([&] { ops::adamw_step(buffers, {}); });
  return static_cast<double>(kCount) * bytes_of_parameter / seconds;
}

double copy_bandwidth(Measurer& measurer) {
  constexpr int64_t kCount = 1 << 24;
  const at::Tensor from = at::zeros({kCount}, at::kFloat);
  at::Tensor to = at::empty({kCount}, at::kFloat);
  return 2.0 * 4 * kCount / measurer.best_of([&] { to.copy_(from); });
}

}  // namespace

plan::MachineSamples measure_machine(comm::Communicator& communicator, double seconds) {
  Measurer measurer(communicator, seconds);
  plan::MachineSamples samples;
  samples.ranks = communicator.size();
  {
    const at::NoGradGuard no_grad;
    samples.products32 = measure_products(measurer, at::kFloat);
    samples.products16 = measure_products(measurer, at::kBFloat16);
    samples.copy_bandwidth = copy_bandwidth(measurer);
    samples.update_bandwidth = update_bandwidth(measurer, plan::Software{}.update_bytes);
    for (int64_t bytes = 4096; communicator.size() > 1 && bytes <= (1 << 25); bytes *= 8) {
      at::Tensor tensor = at::zeros({bytes / 4}, at::kFloat);
      samples.reductions.push_back(
          {static_cast<double>(communicator.size()),
           static_cast<double>(bytes),
           measurer.best_of([&] { communicator.all_reduce(tensor).wait(); })});
    }
  }
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Pass& pass : kPasses) {
      samples.passes.push_back(measure_pass(measurer, pass, type));
    }
  }
  return samples;
}

}  // namespace lockstep::train
