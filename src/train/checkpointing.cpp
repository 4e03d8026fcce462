// Saves, resumes and exports training state.
#include "train/checkpointing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/folders.h"
#include "checkpoint/object_store_run.h"
#include "comm/split.h"
#include "monitor/memory.h"
#include "objects/store.h"
#include "train/averages.h"
#include "train/best_checkpoint.h"
#include "train/plan.h"
#include "train/run_identity.h"
#include "train/steering.h"
#include "train/tasks/classifier_notes.h"
#include "train/weights/adapter_base.h"
#include "train/weights/adapters.h"
#include "train/weights/stacks.h"

namespace lockstep::train {
namespace {

constexpr int kStateFormat = 1;

const model::ModelConfig& saved_config(const Job& job) {
  return job.untouched ? job.untouched->whole : job.model->model().config();
}

void add_untouched(
    const Job& job, const RankContext& context, std::vector<checkpoint::Piece>& pieces) {
  const at::ScalarType type = compute_type(job.config.training);
  for (size_t i = 0; i < job.untouched->parameters.size(); ++i) {
    if (static_cast<int>(i % static_cast<size_t>(context.size())) == context.rank()) {
      const model::ParameterSpec& parameter = job.untouched->parameters[i];
      const at::Tensor whole = at::empty(parameter.shape, at::dtype(type));
      job.untouched->fill(parameter.name, {parameter.shape, {}}, 0, whole);
      pieces.push_back(
          {"model", parameter.name, type, parameter.shape, 0, whole, {}, written_stack(parameter)});
    }
  }
}

using Stacks = std::map<std::string, checkpoint::StackedTensor>;

std::optional<checkpoint::StackedTensor> stack_of(
    const Stacks& stacks, const std::string& group, const std::string& name) {
  const auto found = group == "model" ? stacks.find(name) : stacks.end();
  return found == stacks.end() ? std::nullopt : std::optional(found->second);
}

ClassifierNotes classifier_notes(const Job& job) {
  ClassifierNotes notes =
      notes_of(job.config.data, job.datasets.train->length(), job.judging.thresholds);
  notes.temperature = job.temperature;
  notes.positive_label = job.config.task.positive_label;
  if (job.written_labels) {
    notes.generative = job.config.generative;
  }
  return notes;
}

void read_state(
    Job& job,
    const std::string& text,
    const std::filesystem::path& folder,
    const RankContext& context) {
  const std::string source = (folder / checkpoint::kStateName).string();
  const nlohmann::json state = parse_json(text, source, ErrorKind::kCheckpoint);
  try {
    if (state.at("format") != kStateFormat) {
      throw Error(
          ErrorKind::kCheckpoint,
          fmt::format("{} has format {}, not {}", source, state.at("format").dump(), kStateFormat),
          "resume with the version of lockstep that wrote it");
    }
    Progress& progress = job.progress;
    progress.step = state.at("step");
    progress.tokens = state.at("tokens");
    progress.epoch = state.at("epoch");
    const nlohmann::json& sampler = state.at("sampler");
    progress.sampler = {sampler.at("epoch"), sampler.at("position"), sampler.at("seed")};
    job.model->optimizer().set_steps(state.at("optimizer").at("steps"));
    restore_acts(job, state.value("acts", nlohmann::json::array()), context);
    job.schedule->load_state(state.at("scheduler"));
    if (state.contains("loss_scale") && job.config.training.fp16) {
      const nlohmann::json& scale = state.at("loss_scale");
      job.model->loss_scale().set_state(
          {scale.at("value"), scale.at("steps_since_overflow"), scale.at("overflows_left")});
    }
    job.best = read_best(state, folder);
    progress.owes_evaluation = state.value("owes_evaluation", false);
    if (job.retain_weight) {
      job.retain_weight->set_value(state.value("kept_weight", job.retain_weight->value()));
    }
    if (state.contains("epoch_rows")) {
      job.epoch_rows = epoch_rows_of(state.at("epoch_rows"));
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kCheckpoint, fmt::format("{}: {}", source, error.what()));
  }
}

/// Returns the tensors that the checkpoint must contain for the requested groups: those of which
/// this rank holds a slice, and those of the other stages of its pipeline.
std::vector<checkpoint::ExpectedTensor> expected_tensors(
    const Job& job, bool with_optimizer, RankContext& context) {
  nlohmann::json own = nlohmann::json::array();
  const Stacks stacks = written_stacks(saved_config(job));
  job.model->visit_state([&](const parallel::StateSlice& slice) {
    if (slice.file_group != "model" && !with_optimizer) {
      return;
    }
    const at::ScalarType type = slice.data.scalar_type();
    const SavedNames saved = saved_names(job.adapters.get(), slice.file_group, slice.name);
    for (const std::string& name : saved.names) {
      const auto stack = stack_of(stacks, saved.file_group, name);
      own.push_back(
          {saved.file_group,
           stack ? stack->name : name,
           stack ? stack->shape : slice.shape,
           at::isFloatingType(type) ? -1 : static_cast<int>(type)});
    }
  });
  std::set<nlohmann::json> all;
  for (const std::string& text : comm::gather_strings(context.communicator, own.dump())) {
    for (nlohmann::json& tensor : nlohmann::json::parse(text)) {
      all.insert(std::move(tensor));
    }
  }
  std::vector<checkpoint::ExpectedTensor> expected;
  for (const nlohmann::json& tensor : all) {
    const int type = tensor.at(3);  // -1: any floating-point type
    expected.push_back(
        {tensor.at(0),
         tensor.at(1),
         tensor.at(2),
         type < 0 ? std::nullopt : std::optional(static_cast<at::ScalarType>(type))});
  }
  return expected;
}

checkpoint::Piece as_saved(
    checkpoint::Piece piece,
    const SavedNames& saved,
    const std::string& name,
    const Stacks& stacks) {
  piece.file_group = saved.file_group;
  piece.name = name;
  piece.stack = stack_of(stacks, saved.file_group, name);
  return piece;
}

void read_slices(
    const Job& job, const checkpoint::Checkpoint& from, bool with_optimizer, RankContext& context) {
  from.check(
      expected_tensors(job, with_optimizer, context),
      job.untouched ? checkpoint::Checkpoint::Extra::kAllow
                    : checkpoint::Checkpoint::Extra::kRefuse);
  const Stacks stacks = written_stacks(saved_config(job));
  job.model->visit_state([&](const parallel::StateSlice& slice) {
    const SavedNames saved = saved_names(job.adapters.get(), slice.file_group, slice.name);
    if ((slice.file_group == "model" || with_optimizer) && !saved.names.empty()) {
      from.read(as_saved(checkpoint::held_piece(slice), saved, saved.names.front(), stacks));
    }
  });
  job.model->state_changed();
}

bool is_of_job(const checkpoint::Checkpoint& checkpoint, const std::string& job) {
  const nlohmann::json state = parse_json(checkpoint.state(), "state.json", ErrorKind::kCheckpoint);
  return job.empty() || state.value("job", "") == job;
}

checkpoint::Checkpoint open(
    const Job& job, const std::filesystem::path& folder, RankContext& context) {
  return checkpoint::Checkpoint::open(
      folder,
      context.communicator,
      job.config.checkpoint.verify ? checkpoint::Verify::kHashes : checkpoint::Verify::kSizes);
}

}  // namespace

std::filesystem::path checkpoint_folder(const std::filesystem::path& output_dir, int64_t step) {
  return checkpoint::checkpoint_folder(output_dir, step);
}

std::optional<std::filesystem::path> find_checkpoint_to_resume(
    const Job& job, RankContext& context) {
  const config::Config& config = job.config;
  const std::string asked = config.training.resume_from_checkpoint.value_or("false");
  const bool restarted = context.round.number > 0;
  if (asked == "true" || restarted) {
    const auto latest = job.stored ? job.stored->latest(context.communicator)
                                   : checkpoint::latest_checkpoint(
                                         config.training.output_dir, context.communicator);
    if (latest && (asked == "true" || is_of_job(*latest, context.round.job))) {
      return latest->folder();
    }
  }
  if (asked == "true" || asked == "false") {
    if (context.is_first() && (asked == "true" || restarted)) {
      log_info(
          "no checkpoint in {}: starting from the beginning",
          job.stored ? job.stored->place().text() : config.training.output_dir);
    }
    return std::nullopt;
  }
  if (objects::is_remote(asked)) {
    return checkpoint::fetch_model(asked, /*whole=*/true);
  }
  checkpoint::check_is_no_run(asked);
  return asked;
}

int64_t owned_bytes(const Job& job, bool with_optimizer) {
  int64_t bytes = 0;
  job.model->visit_state([&](const parallel::StateSlice& slice) {
    const bool is_saved =
        !saved_names(job.adapters.get(), slice.file_group, slice.name).names.empty();
    if (is_saved && (slice.file_group == "model" || with_optimizer)) {
      bytes +=
          (slice.owned_end - slice.owned_begin) * static_cast<int64_t>(slice.data.element_size());
    }
  });
  return bytes;
}

bool has_room(int64_t bytes, RankContext& context) {
  const int64_t room = monitor::available_memory();
  const bool fits = room <= 0 || bytes * context.local_size < room / 2;
  const auto answers = comm::gather_strings(context.communicator, fits ? "fits" : "");
  return std::find(answers.begin(), answers.end(), "") == answers.end();
}

comm::Communicator group_beside_training(RankContext& context, const std::string& name) {
  std::vector<int> all(static_cast<size_t>(context.size()));
  std::iota(all.begin(), all.end(), 0);
  comm::GroupOptions options = context.group;
  options.device = c10::Device(c10::kCPU);
  options.explains_waits = false;
  return comm::split(context.communicator, all, name, options);
}

std::unique_ptr<checkpoint::AsyncSaver> make_saver(Job& job, RankContext& context) {
  const config::TrainingSection& training = job.config.training;
  const bool saves_before_the_end =
      training.save_strategy != "no" &&
      (training.save_strategy != "steps" || job.length.save_steps < job.length.total_steps);
  if (!job.config.checkpoint.async || !saves_before_the_end) {
    return nullptr;
  }
  const int64_t bytes = owned_bytes(job, !training.save_only_model);
  if (!has_room(bytes, context)) {
    if (context.is_first()) {
      log_warning(
          "checkpoints are written synchronously: not enough memory for a copy of {} per rank",
          monitor::format_bytes(bytes));
    }
    return nullptr;
  }
  job.snapshot_bytes = bytes;
  return std::make_unique<checkpoint::AsyncSaver>(group_beside_training(context, "checkpoint"));
}

void wait_for_save(Job& job) {
  if (job.saver != nullptr) {
    job.saver->wait();
  }
}

void before_state_update(Job& job) {
  if (job.saver != nullptr) {
    job.saver->before_state_update();
  }
  if (job.kept != nullptr) {
    job.kept->before_state_update();
  }
}

std::vector<checkpoint::Piece> owned_pieces(
    const Job& job, bool with_optimizer, const RankContext& context) {
  std::vector<checkpoint::Piece> pieces;
  const Stacks stacks = written_stacks(saved_config(job));
  job.model->visit_state([&](const parallel::StateSlice& slice) {
    if (slice.file_group != "model" && !with_optimizer) {
      return;
    }
    const SavedNames saved = saved_names(job.adapters.get(), slice.file_group, slice.name);
    for (const std::string& name : saved.names) {
      checkpoint::Piece& piece =
          pieces.emplace_back(as_saved(checkpoint::owned_piece(slice), saved, name, stacks));
      if (slice.transient) {
        piece.data = piece.data.clone();
      }
    }
  });
  if (job.untouched) {
    add_untouched(job, context, pieces);
  }
  return pieces;
}

checkpoint::SmallFiles model_files(const Job& job) {
  const model::ModelConfig& config = saved_config(job);
  checkpoint::SmallFiles files;
  if (job.adapters == nullptr) {
    files = model_folder_files(
        config, compute_type(job.config.training), job.tokenizer.get(), job.source.generation);
    files.insert(job.source.kept.begin(), job.source.kept.end());
  } else {
    files = job.tokenizer->files();
    if (!job.source.generation.text.empty()) {
      files[model::kGenerationConfigName] = job.source.generation.text;
    }
    files[std::string(model::kAdapterConfigName)] = adapter_config(*job.adapters, config);
    if (!job.adapters->base_hash.empty()) {
      files[std::string(kBaseName)] = base_json(job.adapters->base_hash);
    }
  }
  if (job.written_labels) {
    files[kClassifierNotes] = to_json(classifier_notes(job), job.written_labels->labels);
  }
  if (config.head.classifies()) {
    if (job.adapters != nullptr) {
      files[std::string(kLabelsName)] = labels_json(config.head);
    }
    files[kClassifierNotes] = to_json(classifier_notes(job), config.head.labels);
  }
  return files;
}

std::string state_json(const Job& job, const RankContext& context) {
  const Progress& progress = job.progress;
  nlohmann::ordered_json state{
      {"format", kStateFormat},
      {"step", progress.step},
      {"tokens", progress.tokens},
      {"epoch", progress.epoch},
      {"seed", job.config.training.seed},
      {"sampler",
       {{"seed", progress.sampler.seed},
        {"epoch", progress.sampler.epoch},
        {"position", progress.sampler.position}}},
      {"optimizer",
       {{"name", job.config.training.optim}, {"steps", job.model->optimizer().steps()}}},
      {"scheduler", job.schedule->state()},
      {"versions", {{"libtorch", TORCH_VERSION}}},
      {"ranks", context.size()},
      {"identity", identity_of(job)},
      {"configuration", job.resolved}};
  if (job.config.training.fp16) {
    const parallel::LossScale::State scale = job.model->loss_scale().state();
    state["loss_scale"] = {
        {"value", scale.value},
        {"steps_since_overflow", scale.steps_since_overflow},
        {"overflows_left", scale.overflows_left}};
  }
  if (!job.rate_acts.empty()) {
    state["acts"] = acts_json(job);
  }
  if (!context.round.job.empty()) {
    state["job"] = context.round.job;
  }
  write_best(state, job.best, job.config.training.output_dir);
  if (progress.owes_evaluation) {
    state["owes_evaluation"] = true;
  }
  if (job.retain_weight) {
    state["kept_weight"] = job.retain_weight->value();
  }
  if (job.epoch_rows.rows > 0) {
    state["epoch_rows"] = to_json(job.epoch_rows);
  }
  return state.dump(2) + "\n";
}

std::function<void()> rotation(const Job& job, const RankContext& context) {
  const config::TrainingSection& training = job.config.training;
  std::optional<int64_t> limit = training.save_total_limit;
  if (limit.value_or(0) <= 0) {  // as in Hugging Face's Trainer
    limit.reset();
  }
  std::vector<std::filesystem::path> keep;
  if (job.best_rule.is_asked_for() && job.best.saved) {
    keep.push_back(job.best.saved->checkpoint);
  }
  return [first = context.is_first(),
          stored = job.stored.get(),
          output = training.output_dir,
          limit,
          keep = std::move(keep)] {
    if (first && stored != nullptr) {
      std::vector<int64_t> steps;
      for (const std::filesystem::path& folder : keep) {
        steps.push_back(checkpoint::checkpoint_step(folder).value_or(-1));
      }
      stored->rotate(limit, steps);
    } else if (first && limit) {
      checkpoint::rotate_checkpoints(output, *limit, keep);
    }
  };
}

void save_training_state(Job& job, RankContext& context, bool goes_on) {
  const config::TrainingSection& training = job.config.training;
  const std::filesystem::path folder = checkpoint_folder(training.output_dir, job.progress.step);
  const bool with_optimizer = !training.save_only_model;
  if (job.config.checkpoint.compare_replicas > 0) {
    job.model->compare_replicas();
  }
  const Averages averages(*job.model);
  observe_save(job, folder);
  checkpoint::SmallFiles files;
  if (context.is_first()) {
    files = model_files(job);
    files[std::string(kTrainerState)] = monitor::to_json(job.monitor->state());
    files["config.yaml"] = job.resolved;
  }
  const std::function<void()> rotate = rotation(job, context);
  const checkpoint::SaveOptions options{
      .hold = job.hold.get(), .stored = job.stored.get(), .finite = true};
  const std::string state = state_json(job, context);
  wait_for_save(job);
  if (job.saver != nullptr && goes_on) {
    job.saver->save(
        folder, owned_pieces(job, with_optimizer, context), state, files, options, rotate);
    if (averages.are_put()) {
      before_state_update(job);  // the averages are about to be swapped out
    }
    return;
  }
  checkpoint::save_checkpoint(
      folder,
      owned_pieces(job, with_optimizer, context),
      state,
      files,
      context.communicator,
      options);
  on_first_rank(context.communicator, [&] {
    rotate();
    return "";
  });
}

double seconds_for_others(const Job& job) {
  return job.axes->seconds_waited() +
         (job.saver != nullptr ? job.saver->seconds_held_for_others() : 0);
}

monitor::TrainerState restore_training_state(
    Job& job, const std::filesystem::path& folder, RankContext& context) {
  const double began = seconds_now();
  const checkpoint::Checkpoint from = open(job, folder, context);
  bool needs_optimizer = false;  // plain SGD in float32 has no optimizer state
  job.model->visit_state([&](const parallel::StateSlice& slice) {
    needs_optimizer = needs_optimizer || slice.file_group == "optimizer";
  });
  if (needs_optimizer && !from.has_group("optimizer")) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format(
            "{} contains a model without optimizer state and cannot be resumed", folder.string()),
        fmt::format("start a new run from its weights with model.path={}", folder.string()));
  }
  const std::string source = (folder / checkpoint::kStateName).string();
  check_identity(
      job, context, parse_json(from.state(), source, ErrorKind::kCheckpoint), folder.string());
  const Averages averages(*job.model);
  read_slices(job, from, /*with_optimizer=*/true, context);
  read_state(job, from.state(), folder, context);
  check_best_checkpoint(job, context);
  if (job.config.training.resume_from_checkpoint == "true" || context.round.number > 0) {
    read_acts_to_come(job, context);
  }
  if (job.config.training.ignore_data_skip && context.round.number == 0) {
    job.progress.sampler.position = 0;
  }
  if (context.is_first()) {
    const std::string took = fmt::format("read in {:.2f} s", seconds_now() - began);
    log_info("resuming from {} after step {}, {}", folder.string(), job.progress.step, took);
  }
  monitor::TrainerState state;
  if (from.has_file(std::string(kTrainerState))) {
    state = monitor::parse_trainer_state(
        from.file(std::string(kTrainerState)), (folder / kTrainerState).string());
  }
  state.global_step = job.progress.step;
  state.best_model_checkpoint.reset();
  if (job.best.saved && job.best_rule.is_asked_for()) {
    state.best_model_checkpoint = job.best.saved->checkpoint.string();
  }
  return state;
}

void load_weights(Job& job, const std::filesystem::path& folder, RankContext& context) {
  read_slices(job, open(job, folder, context), /*with_optimizer=*/false, context);
}

void export_model(Job& job, const std::filesystem::path& folder, RankContext& context) {
  checkpoint::save_model(
      folder,
      owned_pieces(job, /*with_optimizer=*/false, context),
      context.is_first() ? model_files(job) : checkpoint::SmallFiles{},
      context.communicator,
      {.hold = job.hold.get(), .finite = true});
}

void export_final_model(Job& job, RankContext& context) {
  export_model(job, job.config.training.output_dir, context);
}

const char* type_name(at::ScalarType type) {
  return type == at::kBFloat16 ? "bfloat16" : type == at::kHalf ? "float16" : "float32";
}

checkpoint::SmallFiles model_folder_files(
    const model::ModelConfig& config,
    at::ScalarType type,
    const text::Tokenizer* tokenizer,
    const model::GenerationConfig& generation) {
  checkpoint::SmallFiles files =
      tokenizer == nullptr ? checkpoint::SmallFiles{} : tokenizer->files();
  files["config.json"] = model::to_json(config, type_name(type));
  if (!config.head.classifies()) {
    files[model::kGenerationConfigName] = model::to_json(generation, config);
  }
  return files;
}

std::shared_ptr<const text::Tokenizer> load_tokenizer(
    const std::string& path, const model::ModelSource& source, const std::string& chat_template) {
  const std::filesystem::path folder = path.empty()               ? source.folder
                                       : objects::is_remote(path) ? checkpoint::fetch_model(path)
                                                                  : std::filesystem::path(path);
  if (folder.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} has no tokenizer", source.name),
        "set tokenizer.path=FOLDER; `lockstep tokenizer train` creates one");
  }
  auto tokenizer = text::Tokenizer::load(folder);
  if (chat_template.empty()) {
    return tokenizer;
  }
  text::TokenizerFiles files{folder.string(), tokenizer->files()};
  files.contents["chat_template.jinja"] = read_file(chat_template, ErrorKind::kConfig);
  return text::Tokenizer::parse(std::move(files));
}

}  // namespace lockstep::train
