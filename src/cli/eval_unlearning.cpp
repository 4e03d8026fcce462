#include "cli/eval_unlearning.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cli/world.h"
#include "parallel/parallelize.h"
#include "train/answer_reference.h"
#include "train/model_loading.h"
#include "train/plan.h"
#include "train/tofu.h"

namespace lockstep::cli {
namespace {

std::filesystem::path results_folder(const config::Resolution& resolution) {
  const std::string folder =
      resolution.value("output").value_or(resolution.config.training.output_dir);
  if (folder.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "there is no folder for the results",
        "give --output FOLDER: TOFU_EVAL.json and TOFU_SUMMARY.json are written there");
  }
  return folder;
}

/// Of the model's weights, and of an adapter's.
std::string hash_of(
    const model::ModelSource& source,
    const std::optional<train::AdapterRequest>& adapter,
    int64_t seed) {
  std::string hash = train::weights_hash(source, seed);
  if (adapter) {
    model::ModelSource beside = source;
    beside.folder = adapter->folder;
    hash += "+" + train::weights_hash(beside, seed);
  }
  return hash;
}

void check_axes(const mesh::Mesh& mesh) {
  if (mesh.pipeline > 1 || mesh.context > 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("answers are written under data and tensor parallelism, not {}", mesh.text()),
        "leave parallel.pipeline and parallel.context at 1; parallel.tensor may be more");
  }
}

}  // namespace

int evaluate_unlearning(const config::Resolution& resolution, train::World& world) {
  const config::Config& config = resolution.config;
  const std::filesystem::path folder = results_folder(resolution);
  const model::ModelSource source = train::find_source(config.model.path, "");
  const auto tokenizer = train::load_tokenizer(config.tokenizer.path, source);
  train::ModelRequest request;
  request.device = world.device;
  request.dtype = config.training.bf16 || config.training.bf16_full_eval
                      ? at::kBFloat16
                      : train::stored_type(source);
  request.tokenizer_size = tokenizer->vocabulary_size();
  request.adapter = train::saved_adapter(config.lora.adapter);
  parallel::Axes axes(
      world.communicator, train::mesh_of(config.parallel, world.size()), world.group);
  check_axes(axes.mesh());
  const parallel::ShardedModel sharded =
      parallel::make_sharded_model(train::model_spec(source, request), {}, axes);
  train::AnswerReader reader(
      *sharded.model, axes, tokenizer, config.training.per_device_eval_batch_size, world.device);
  std::vector<int64_t> stops = source.config.eos_token_ids;
  if (tokenizer->eos()) {
    stops.push_back(*tokenizer->eos());
  }
  train::TofuSuite suite(
      config,
      tokenizer,
      std::move(stops),
      train::sequence_length_of(config, source.config),
      reader);
  const std::string there = train::on_first_rank(world.communicator, [&] {
    const std::string model = hash_of(source, request.adapter, config.training.seed);
    return config.unlearning.overwrite ? nlohmann::json({{"model_hash", model}}).dump()
                                       : train::read_tofu(folder, model).dump();
  });
  nlohmann::json results = nlohmann::json::parse(there);
  for (const std::string& metric : config.unlearning.metrics) {
    suite.measure(metric, results);
    train::on_first_rank(world.communicator, [&] {
      train::write_tofu(folder, results, config.unlearning.metrics);
      const nlohmann::json& value = results[metric]["agg_value"];
      fmt::print("{:<22} {}\n", metric, value.dump());
      return "";
    });
  }
  if (world.is_first()) {
    for (const std::string& warning : suite.warnings()) {
      log_warning("{}", warning);
    }
    log_info("{}", (folder / "TOFU_EVAL.json").string());
  }
  return 0;
}

}  // namespace lockstep::cli
