// Measures this machine's speed with the trainer's own operations.
#include "train/machine/machine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/processor.h"
#include "base/user_cache.h"
#include "model/model_config.h"
#include "monitor/memory.h"
#include "nn/initialize.h"
#include "nn/language_model.h"
#include "ops/adamw.h"
#include "ops/linear.h"
#include "parallel/context/ring_attention.h"
#include "plan/from_config/planned_job.h"

namespace lockstep::train {
namespace {

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

class Measurer {
 public:
  Measurer(comm::Communicator& communicator, double seconds, bool briefly)
      : communicator_(communicator),
        seconds_(seconds),
        briefly_(briefly) {}

  // Returns the median time on the slowest rank. `body` may contain a collective, so all ranks run
  // it equally often.
  double time_of(const std::function<void()>& body) {
    body();
    communicator_.barrier();
    const double start = seconds_now();
    body();
    const double once = largest(seconds_now() - start);
    const int runs =
        static_cast<int>(std::clamp(seconds_ / std::max(once, 1e-9), briefly_ ? 0.0 : 3.0, 1000.0));
    std::vector<double> times;
    if (briefly_) {
      times.push_back(once);
    }
    for (int run = 0; run < runs; ++run) {
      const double began = seconds_now();
      body();
      times.push_back(seconds_now() - began);
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
    std::nth_element(times.begin(), middle, times.end());
    return largest(*middle);
  }

  // Returns s such that after t seconds of computation, ranks wait sqrt(s t) seconds for the
  // slowest one. Delays are random, so the difference between ranks grows like a random walk.
  double spread_of(const std::function<void()>& body) {
    const int turns = briefly_ ? 3 : 8;
    double waited = 0;
    double computed = 0;
    for (int run = 0; run < turns; ++run) {
      communicator_.barrier();
      const double began = seconds_now();
      const double began_of_thread = thread_seconds();
      body();
      const double own = seconds_now() - began;
      all_seconds_ += own;
      own_seconds_ += thread_seconds() - began_of_thread;
      waited += largest(own) - own;
      computed += own;
    }
    at::Tensor sums = at::tensor({waited, computed}, at::kDouble);
    communicator_.all_reduce(sums).wait();
    const double runs = static_cast<double>(turns) * communicator_.size();
    const double wait = sums[0].item<double>() / runs;
    return wait * wait / (sums[1].item<double>() / runs);
  }

  // Returns CPU time / wall time of the calls of spread_of(): the minimum over the ranks.
  double share_of_processor() {
    const double share = all_seconds_ > 0 ? own_seconds_ / all_seconds_ : 1;
    return -largest(-share);
  }

  bool briefly() const { return briefly_; }
  comm::Communicator& communicator() const { return communicator_; }

 private:
  double largest(double seconds) {
    at::Tensor most = at::full({1}, seconds, at::kDouble);
    communicator_.all_reduce(most, comm::Reduce::kMax).wait();
    return most.item<double>();
  }

  comm::Communicator& communicator_;
  double seconds_;
  bool briefly_;
  double all_seconds_ = 0, own_seconds_ = 0;
};

namespace {

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
    const at::Tensor b = at::ones({n, k}, type);
    const double seconds =
        measurer.time_of([&] { ops::linear(a, b, std::nullopt, ops::WeightLayout::kOutIn); });
    samples.push_back(
        {static_cast<double>(m), static_cast<double>(n), static_cast<double>(k), seconds});
  }
  return samples;
}

struct Pass {
  const char* family;
  int64_t layers, width, inner, vocabulary, length, rows;
  double dropout;
};

// Each pass differs from the first in one property. In order: vocabulary, layers, length, tokens,
// dropout, MLP width, width, family.
constexpr std::array<Pass, 9> kPasses{
    {{"gpt2", 1, 256, 1024, 2048, 128, 8, 0},
     {"gpt2", 1, 256, 1024, 32768, 128, 8, 0},
     {"gpt2", 4, 256, 1024, 2048, 128, 8, 0},
     {"gpt2", 4, 256, 1024, 2048, 512, 2, 0},
     {"gpt2", 4, 256, 1024, 2048, 128, 1, 0},
     {"gpt2", 4, 256, 1024, 2048, 256, 4, 0.1},
     {"gpt2", 4, 256, 128, 2048, 128, 8, 0},
     {"gpt2", 4, 128, 512, 2048, 256, 4, 0},
     {"llama", 4, 256, 768, 2048, 256, 4, 0}}};
constexpr const Pass& kLlama = kPasses.back();

model::ModelConfig config_of(const Pass& pass) {
  const int64_t heads = pass.width / 64;
  const std::string text =
      std::string(pass.family) == "gpt2"
          ? fmt::format(
                R"({{"model_type": "gpt2", "vocab_size": {}, "n_positions": {}, "n_embd": {}, "n_layer": {},
"n_head": {}, "n_inner": {}, "activation_function": "gelu_new", "resid_pdrop": {}, "embd_pdrop": {}, "attn_pdrop": {}}})",
                pass.vocabulary,
                pass.length,
                pass.width,
                pass.layers,
                heads,
                pass.inner,
                pass.dropout,
                pass.dropout,
                pass.dropout)
          : fmt::format(
                R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "max_position_embeddings": {}, "tie_word_embeddings": true}})",
                pass.vocabulary,
                pass.width,
                pass.inner,
                pass.layers,
                heads,
                pass.length);
  return model::parse_model_config(text, "a model to measure with");
}

// Returns a faster variant with half of the rows and a smaller vocabulary.
Pass brief(Pass pass) {
  pass.vocabulary = std::min<int64_t>(pass.vocabulary, 8192);
  pass.rows = std::max<int64_t>(1, pass.rows / 2);
  return pass;
}

// Returns true for the float32 passes that are needed to determine the rates.
bool is_brief32(const Pass& pass) {
  return &pass == &kPasses[0] || &pass == &kPasses[1] || &pass == &kPasses[3] ||
         &pass == &kPasses[6];
}

struct MeasuredPass {
  plan::PassSample sample;
  std::optional<double> spread;
};

MeasuredPass measure_pass(
    Measurer& measurer, const Pass& pass, at::ScalarType type, bool measures_spread) {
  MeasuredPass result;
  plan::PassSample& sample = result.sample;
  plan::Job& job = sample.job;
  job.model = config_of(pass);
  job.sequence = pass.length;
  job.micro_batch = job.global_batch = pass.rows;
  job.precision = type == at::kFloat ? plan::Precision::kFloat32 : plan::Precision::kMixed16;
  job.software = plan::our_software(job.model, job.precision);
  const auto model = nn::make_model(job.model, type, at::kCPU);
  nn::initialize(*model, 1);
  nn::ForwardInputs inputs;
  inputs.ids = at::arange(pass.rows * pass.length, at::kLong)
                   .remainder(pass.vocabulary)
                   .reshape({pass.rows, pass.length});
  inputs.targets = nn::next_tokens(inputs.ids);
  inputs.samples = at::arange(pass.rows, at::kLong);
  inputs.training = true;
  const auto body = [&] { torch::autograd::backward({model->loss(inputs)}, {}); };
  sample.seconds = measurer.time_of(body);
  if (measures_spread) {
    result.spread = measurer.spread_of(body);
  }
  return result;
}

// Measures ring attention over all ranks, with `length` positions per rank.
plan::RingSample measure_ring(
    Measurer& measurer, comm::Communicator& communicator, int64_t length, at::ScalarType type) {
  constexpr int64_t kRows = 8, kHeads = 4, kHeadDim = 64;
  const auto make = [&] { return at::full({kRows, kHeads, length, kHeadDim}, 0.1, type); };
  const at::Tensor query = make().requires_grad_(), key = make().requires_grad_(),
                   value = make().requires_grad_();
  const at::Tensor gradient = at::ones({kRows, length, kHeads * kHeadDim}, type);
  nn::Attention plain;
  plain.scale = 0.1;
  const parallel::RingAttention ring(
      plain,
      {.context_rank = communicator.rank(), .context_ranks = communicator.size()},
      communicator);
  nn::ForwardInputs inputs;
  inputs.ids = at::zeros({kRows, length}, at::kLong);
  inputs.whole_length = length * communicator.size();
  const model::ModelConfig config = config_of(kLlama);
  const nn::ForwardContext context(config, inputs);
  const double seconds = measurer.time_of([&] {
    torch::autograd::grad(
        {ring.forward(query, key, value, context)}, {query, key, value}, {gradient});
  });
  return {
      static_cast<double>(communicator.size()),
      static_cast<double>(kRows * kHeads),
      static_cast<double>(length),
      static_cast<double>(kHeadDim),
      seconds};
}

double update_bandwidth(Measurer& measurer, double bytes_of_parameter) {
  const int64_t count = measurer.briefly() ? 1 << 21 : 1 << 22;
  const auto zeros = [&](at::ScalarType type) { return at::zeros({count}, type); };
  const ops::AdamWBuffers buffers{
      .parameter = zeros(at::kBFloat16),
      .master = zeros(at::kFloat),
      .gradient = zeros(at::kBFloat16),
      .exp_avg = zeros(at::kFloat),
      .exp_avg_sq = zeros(at::kFloat)};
  const double seconds = measurer.time_of([&] { ops::adamw_step(buffers, {}); });
  return static_cast<double>(count) * bytes_of_parameter / seconds;
}

double copy_bandwidth(Measurer& measurer) {
  const int64_t count = measurer.briefly() ? 1 << 22 : 1 << 24;
  const at::Tensor from = at::zeros({count}, at::kFloat);
  at::Tensor to = at::empty({count}, at::kFloat);
  return 2.0 * 4 * static_cast<double>(count) / measurer.time_of([&] { to.copy_(from); });
}

}  // namespace

MachineMeasuring::MachineMeasuring(comm::Communicator& communicator, double seconds, bool briefly)
    : measurer_(std::make_unique<Measurer>(communicator, seconds, briefly)) {
  samples_.ranks = communicator.size();
  const auto with_no_grad = [&](std::function<void()> body) {
    parts_.emplace_back([body = std::move(body)] {
      const at::NoGradGuard no_grad;
      body();
    });
  };
  with_no_grad([this] { samples_.products32 = measure_products(*measurer_, at::kFloat); });
  with_no_grad([this] { samples_.products16 = measure_products(*measurer_, at::kBFloat16); });
  with_no_grad([this] { samples_.copy_bandwidth = copy_bandwidth(*measurer_); });
  with_no_grad([this] {
    samples_.update_bandwidth = update_bandwidth(*measurer_, plan::Software{}.update_bytes);
  });
  if (communicator.size() > 1) {
    with_no_grad([this] { measure_reductions(); });
  }
  parts_.emplace_back([this] {
    for (const int64_t length : {64, 256}) {
      comm::Communicator& ranks = measurer_->communicator();
      samples_.ring16.push_back(measure_ring(*measurer_, ranks, length, at::kBFloat16));
      samples_.ring32.push_back(measure_ring(*measurer_, ranks, length, at::kFloat));
    }
  });
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Pass& pass : kPasses) {
      if (!briefly || type == at::kBFloat16 || is_brief32(pass)) {
        const bool measures_spread = !briefly || &pass == kPasses.data();
        parts_.emplace_back([this, type, measures_spread, of = briefly ? brief(pass) : pass] {
          MeasuredPass measured = measure_pass(*measurer_, of, type, measures_spread);
          samples_.passes.push_back(std::move(measured.sample));
          if (measured.spread) {
            spreads_.push_back(*measured.spread);
          }
        });
      }
    }
  }
}

MachineMeasuring::~MachineMeasuring() = default;

void MachineMeasuring::measure_reductions() {
  comm::Communicator& ranks = measurer_->communicator();
  for (int64_t bytes = 4096; bytes <= (1 << 25); bytes *= 8) {
    at::Tensor tensor = at::zeros({bytes / 4}, at::kFloat);
    samples_.reductions.push_back(
        {static_cast<double>(ranks.size()), static_cast<double>(bytes), measurer_->time_of([&] {
           ranks.all_reduce(tensor).wait();
         })});
  }
}

double MachineMeasuring::measure_next() {
  const double began = seconds_now();
  if (!done()) {
    parts_[next_++]();
  }
  return seconds_now() - began;
}

double MachineMeasuring::share_of_processor() {
  return measurer_->share_of_processor();
}

plan::MachineSamples MachineMeasuring::samples() const {
  plan::MachineSamples samples = samples_;
  const auto sum = std::accumulate(spreads_.begin(), spreads_.end(), 0.0);
  samples.spread = sum / static_cast<double>(std::max<size_t>(1, spreads_.size()));
  return samples;
}

plan::MachineSamples measure_machine(comm::Communicator& communicator, double seconds) {
  MachineMeasuring measuring(communicator, seconds, /*briefly=*/false);
  while (!measuring.done()) {
    measuring.measure_next();
  }
  return measuring.samples();
}

/// Version of Lockstep's loops. Increment it when their speed changes, so that machines are
/// measured again with the new version.
constexpr int kLoops = 3;

std::filesystem::path machine_file(int ranks) {
  // The hash distinguishes machines that share a home folder, and processors with disabled
  // features.
  std::string text;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line) && !line.empty();) {
    if (line.rfind("apicid", 0) != 0 && line.rfind("cpu MHz", 0) != 0) {
      text += line + "\n";
    }
  }
  text += fmt::format(
      "{} {} {}", std::thread::hardware_concurrency(), static_cast<int>(instruction_set()), kLoops);
  return user_cache_folder() /
         fmt::format(
             "machine-{}x{}-{}.yaml", ranks, at::get_num_threads(), hash_hex(text).substr(0, 8));
}

void write_machine(
    plan::MachineSamples samples, const std::filesystem::path& file, const std::string& how) {
  samples.memory_bytes =
      static_cast<double>(monitor::available_memory()) / std::max(samples.ranks, 1);
  if (file.has_parent_path()) {
    create_folders(file.parent_path());
  }
  write_file_atomically(
      file,
      plan::machine_yaml(
          plan::fit_machine(samples),
          fmt::format(
              "Measured by {}: {} ranks at a time, {} threads each.",
              how,
              samples.ranks,
              at::get_num_threads())),
      ErrorKind::kEnvironment);
}

}  // namespace lockstep::train
