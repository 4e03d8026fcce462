// A complete trainer on Lockstep's library, meant to be read from top to bottom: options, data,
// model, parallelism, training loop, checkpoints. Its losses equal those of `lockstep train`.
//
//   one_file model=gpt2.json tokenizer=gpt2-folder data=corpus.txt output=run steps=20
//   lockstep launch --nproc-per-node 4 one_file ... tensor=2 zero=1
#include <charconv>
#include <map>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/data/loader.h>
#include <lockstep/data/prepare.h>
#include <lockstep/launch/record.h>
#include <lockstep/library/join.h>
#include <lockstep/monitor/metrics.h>
#include <lockstep/optim/schedule.h>
#include <lockstep/parallel/parallelize.h>
#include <lockstep/text/tokenizer.h>
#include <lockstep/train/batches/inputs.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

namespace {
namespace fs = std::filesystem;
using namespace lockstep;

// ---------------------------------------------------------------------------------------- options

struct Options {
  std::string model;      // config.json of the model
  std::string tokenizer;  // folder with the tokenizer's files
  std::string data;       // text file
  std::string output = "run";
  int64_t steps = 20, save_every = 10;  // optimizer steps
  int64_t batch = 8;                    // sequences per step, over all ranks
  int64_t rows = 8;                     // maximum number of sequences per micro-batch
  int64_t length = 64;                  // tokens per sequence
  double learning_rate = 5e-5;
  int64_t warmup = 0, seed = 42;
  int64_t pipeline = 1, tensor = 1, zero = 0;  // the remaining ranks are data-parallel
};

template <typename Number>
Number parse_number(std::string_view key, std::string_view text) {
  Number value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) {
    throw Error(
        ErrorKind::kConfig,
        std::string(key) + "=" + std::string(text) + " is not a number",
        "set a number, for example " + std::string(key) + "=1");
  }
  return value;
}

/// Parses arguments of the form key=value.
Options parse_options(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::string*, std::less<>> texts = {
      {"model", &options.model},
      {"tokenizer", &options.tokenizer},
      {"data", &options.data},
      {"output", &options.output}};
  const std::map<std::string, int64_t*, std::less<>> numbers = {
      {"steps", &options.steps},
      {"save_every", &options.save_every},
      {"batch", &options.batch},
      {"rows", &options.rows},
      {"length", &options.length},
      {"warmup", &options.warmup},
      {"seed", &options.seed},
      {"pipeline", &options.pipeline},
      {"tensor", &options.tensor},
      {"zero", &options.zero}};
  for (const std::string_view word : std::span(argv, static_cast<size_t>(argc)).subspan(1)) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    if (const auto text = texts.find(key); text != texts.end()) {
      *text->second = value;
    } else if (const auto number = numbers.find(key); number != numbers.end()) {
      *number->second = parse_number<int64_t>(key, value);
      const int64_t least = key == "warmup" || key == "seed" || key == "zero" ? 0 : 1;
      if (*number->second < least) {
        throw Error(ErrorKind::kConfig, std::string(word) + ": at least " + std::to_string(least));
      }
    } else if (key == "learning_rate") {
      options.learning_rate = parse_number<double>(key, value);
    } else {
      throw Error(
          ErrorKind::kConfig,
          "unknown option: " + std::string(word),
          "set options as key=value; the keys are the fields of Options in one_file.cpp");
    }
  }
  if (options.model.empty() || options.tokenizer.empty() || options.data.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "model, tokenizer and data are required",
        "add model=CONFIG.JSON tokenizer=FOLDER data=TEXT");
  }
  return options;
}

// ------------------------------------------------------------------------------------------- data

/// Tokenizes the text once: rank 0 writes a token file, and every rank maps it into memory.
/// Sequences are consecutive blocks of the token stream.
std::shared_ptr<const data::SequenceView> open_data(
    const Options& options,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    train::RankContext& world) {
  const std::string file = train::on_first_rank(world.communicator, [&] {
    data::DataOptions text;
    text.train = {options.data};
    text.cache_dir = fs::path(options.output) / "cache";
    return data::prepare_data(text, data::make_encoder(tokenizer)).train.string();
  });
  return std::make_shared<const data::SequenceView>(data::TokenDataset::open(file), options.length);
}

// ------------------------------------------------------------------------- model and parallelism

/// Arranges the ranks in a mesh. Ranks that are not used for pipeline or tensor parallelism are
/// data-parallel.
parallel::ParallelGroups make_axes(const Options& options, train::RankContext& world) {
  mesh::MeshRequest request;
  request.pipeline = options.pipeline;
  request.tensor = options.tensor;
  return {world.communicator, mesh::make_mesh(request, world.size()), world.group};
}

/// Builds this rank's shard of the model. The initial weights do not depend on the parallel plan.
std::unique_ptr<parallel::ParallelModel> make_model(
    const Options& options,
    int64_t tokens,
    const data::SamplerOptions& rows,
    parallel::ParallelGroups& axes,
    at::Device on) {
  parallel::ModelSpec spec;
  spec.config = model::read_model_config(options.model);
  model::check_positions(spec.config, options.length);
  if (tokens > spec.config.vocab_size) {
    throw Error(
        ErrorKind::kConfig,
        "the tokenizer has " + std::to_string(tokens) + " tokens, but " + options.model + " has " +
            std::to_string(spec.config.vocab_size),
        "use the tokenizer that belongs to the model");
  }
  spec.device = on;
  spec.fill = parallel::fill_at_random(spec.config, static_cast<uint64_t>(options.seed));
  parallel::Plan plan;  // AdamW without weight decay, gradients clipped to norm 1
  plan.zero_stage = static_cast<int>(options.zero);
  plan.sequence_length = options.length;
  const int64_t rows_of_rank = (rows.global_batch + rows.ranks - 1) / rows.ranks;
  plan.accumulation_steps = (rows_of_rank + rows.micro_batch - 1) / rows.micro_batch;
  return parallel::parallelize(spec, plan, axes);
}

// ------------------------------------------------------------------------------------ checkpoints

/// Progress of the run. The order of the data is a function of these numbers alone.
struct Progress {
  int64_t step = 0;
  data::SamplerState sampler;
};

/// Returns this rank's slices of the state. Each element of a tensor is owned by exactly one rank.
std::vector<checkpoint::Piece> owned_pieces(parallel::ParallelModel& model, bool with_optimizer) {
  std::vector<checkpoint::Piece> pieces;
  model.visit_state([&](const parallel::StateSlice& slice) {
    if (with_optimizer || slice.file_group == "model") {
      pieces.push_back(
          {slice.file_group,
           slice.name,
           slice.data.scalar_type(),
           slice.shape,
           slice.begin + slice.owned_begin,
           slice.data.narrow(0, slice.owned_begin, slice.owned_end - slice.owned_begin),
           slice.cut});
    }
  });
  return pieces;
}

/// Returns the files that transformers needs to open a folder of weights.
checkpoint::SmallFiles model_files(
    parallel::ParallelModel& model, const text::Tokenizer& tokenizer) {
  checkpoint::SmallFiles files = tokenizer.files();
  files["config.json"] = model::to_json(model.model().config(), "float32");
  return files;
}

void save(
    const Options& options,
    const Progress& progress,
    parallel::ParallelModel& model,
    const text::Tokenizer& tokenizer,
    train::RankContext& world) {
  const nlohmann::json state = {
      {"step", progress.step},
      {"epoch", progress.sampler.epoch},
      {"position", progress.sampler.position}};
  checkpoint::save_checkpoint(
      checkpoint::checkpoint_folder(options.output, progress.step),
      owned_pieces(model, /*with_optimizer=*/true),
      state.dump(),
      model_files(model, tokenizer),
      world.communicator);
}

/// Resumes from the newest complete checkpoint, if any. The checkpoint may come from any number of
/// ranks and any parallel plan.
Progress resume(const Options& options, parallel::ParallelModel& model, train::RankContext& world) {
  Progress progress;
  progress.sampler.seed = static_cast<uint64_t>(options.seed);
  const auto saved = checkpoint::latest_checkpoint(options.output, world.communicator);
  if (!saved) {
    return progress;
  }
  model.visit_state([&](const parallel::StateSlice& slice) {
    saved->read(
        {slice.file_group,
         slice.name,
         slice.data.scalar_type(),
         slice.shape,
         slice.begin,
         slice.data,
         slice.cut});
  });
  model.state_changed();
  const nlohmann::json state = nlohmann::json::parse(saved->state());
  progress.step = state.at("step");
  progress.sampler.epoch = state.at("epoch");
  progress.sampler.position = state.at("position");
  model.optimizer().set_steps(progress.step);
  return progress;
}

// --------------------------------------------------------------------------------------- the loop

/// Returns this rank's rows of a step as tensors. Sets `targets` to the divisor of the step's loss,
/// counted over all ranks.
std::vector<nn::ForwardInputs> read_step(
    const data::StepBatch& batch,
    int64_t step,
    uint64_t seed,
    parallel::ParallelModel& model,
    objective::Counts& targets) {
  std::vector<nn::ForwardInputs> inputs;
  objective::Counts mine;
  for (const data::MicroBatch& rows : batch.micro_batches) {
    nn::ForwardInputs tensors = train::to_inputs(rows);
    mine += model.objective().counts(tensors.targets);
    tensors.training = true;  // enables dropout, with masks derived from seed, step and sample
    tensors.seed = seed;
    tensors.step = step;
    inputs.push_back(train::to_device(tensors, model.device()));
  }
  at::Tensor sum = at::tensor(mine.values(), at::kDouble);
  model.axes().along(mesh::Axis::kData).all_reduce(sum).wait();
  const auto* values = sum.const_data_ptr<double>();
  targets = objective::Counts({values, values + sum.numel()});
  return inputs;
}

int run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  train::RankContext world = join();  // joins the launcher's job, or runs as a single rank
  checkpoint::check_shared_folder(options.output, world.communicator);
  const auto tokenizer = text::Tokenizer::load(options.tokenizer);
  const auto sequences = open_data(options, tokenizer, world);

  parallel::ParallelGroups axes = make_axes(options, world);
  data::SamplerOptions rows;
  rows.sequences = sequences->size();
  rows.global_batch = options.batch;
  rows.micro_batch = options.rows;
  rows.rank = axes.coordinate().data;
  rows.ranks = axes.mesh().data;
  const auto model = make_model(options, tokenizer->vocabulary_size(), rows, axes, world.device);
  const auto schedule = optim::make_schedule(
      {.lr_scheduler_type = "linear",
       .learning_rate = options.learning_rate,
       .total_steps = options.steps,
       .warmup_steps = static_cast<double>(options.warmup)});

  Progress progress = resume(options, *model, world);
  data::Loader loader(sequences, data::Sampler(rows, progress.sampler));
  std::unique_ptr<monitor::MetricsFile> metrics;
  if (world.is_first()) {
    const fs::path file = fs::path(options.output) / "metrics.jsonl";
    metrics = std::make_unique<monitor::MetricsFile>(file, progress.step);
  }
  while (progress.step < options.steps) {
    launch::set_recorded_step(progress.step + 1);  // recorded for failure reports
    const data::StepBatch batch = loader.next();
    objective::Counts targets;
    const auto inputs =
        read_step(batch, progress.step, static_cast<uint64_t>(options.seed), *model, targets);
    const parallel::StepResult result = model->forward_backward(inputs, targets);
    model->optimizer_step(schedule->learning_rate(progress.step));
    ++progress.step;
    progress.sampler = batch.after;
    if (metrics != nullptr) {
      log_info("step {}: loss {:.4f}", progress.step, result.loss);
      metrics->log(
          {.step = progress.step, .epoch = batch.epoch, .values = {{"loss", result.loss}}});
    }
    if (progress.step % options.save_every == 0 || progress.step == options.steps) {
      save(options, progress, *model, *tokenizer, world);
    }
  }
  checkpoint::save_model(
      options.output,
      owned_pieces(*model, /*with_optimizer=*/false),
      model_files(*model, *tokenizer),
      world.communicator);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::launch::record(argc, argv, run);
}
