// Checkpoints of a run: contents, saving, resuming and export.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "monitor/trainer_state.h"
#include "train/job.h"

namespace lockstep::train {

/// Returns output_dir/checkpoint-<step>.
std::filesystem::path checkpoint_folder(const std::filesystem::path& output_dir, int64_t step);

/// Returns the checkpoint to resume from. training.resume_from_checkpoint names a folder, or is
/// "true" for the latest valid checkpoint of output_dir; empty if there is none yet. After a
/// restart, the latest valid checkpoint written by the same job takes precedence. Every rank must
/// call.
std::optional<std::filesystem::path> find_checkpoint_to_resume(
    const Job& job, RankContext& rank_context);

inline constexpr std::string_view kTrainerState = "trainer_state.json";

/// Returns the pieces that this rank writes, which are the elements it owns of each slice.
std::vector<checkpoint::Piece> owned_pieces(
    const Job& job, bool with_optimizer, const RankContext& rank_context);
/// Returns the number of bytes that this rank owns.
int64_t owned_bytes(const Job& job, bool with_optimizer);
/// Returns the files that are written with the weights to make a model folder or an adapter folder.
checkpoint::SmallFiles model_files(const Job& job);
/// Returns the content of state.json.
std::string state_json(const Job& job, const RankContext& rank_context);
/// Returns a function that removes checkpoints beyond save_total_limit on rank 0.
std::function<void()> rotation(const Job& job, const RankContext& rank_context);

/// Returns true if every node has enough memory for `bytes` per rank. Must be called on every rank.
bool has_room(int64_t bytes, RankContext& rank_context);
/// Creates a communicator of all ranks for a background thread. Must be called on every rank.
comm::Communicator group_beside_training(RankContext& rank_context, const std::string& name);

/// Creates the background saver. Returns null if the run saves only at its end, if
/// checkpoint.async=false, or if there is not enough memory. Must be called on every rank.
std::unique_ptr<checkpoint::AsyncSaver> make_saver(Job& job, RankContext& rank_context);

/// Writes output_dir/checkpoint-<step> and removes checkpoints beyond save_total_limit. If training
/// continues (`goes_on`) and a saver exists, saves in the background. Waits for the previous save
/// first. Each rank writes its own shard. Must be called on every rank.
void save_training_state(Job& job, RankContext& rank_context, bool goes_on);

/// Returns the seconds for which this rank has waited for other ranks since the job began, in
/// communication and in saves.
double seconds_for_others(const Job& job);

/// Waits until no background save is copying the state. Must be called before the state is
/// modified, and before work that modifies it is queued on a GPU.
void before_state_update(Job& job);

/// Waits for the background save and rethrows its error, if any.
void wait_for_save(Job& job);

/// Restores the weights, optimizer, schedule, sampler and counters of the job. Returns the
/// monitor's state. Must be called on every rank.
monitor::TrainerState restore_training_state(
    Job& job, const std::filesystem::path& folder, RankContext& rank_context);

/// Loads the weights of a checkpoint, without the rest of its state. Must be called on every rank.
void load_weights(Job& job, const std::filesystem::path& folder, RankContext& rank_context);

/// Writes the current weights to `folder` as a model folder or an adapter folder. Must be called on
/// every rank.
void export_model(Job& job, const std::filesystem::path& folder, RankContext& rank_context);
/// Makes output_dir itself a model folder. Must be called on every rank.
void export_final_model(Job& job, RankContext& rank_context);

/// Returns Hugging Face's name of a weight type.
const char* type_name(at::ScalarType type);
/// Returns the other files of a model folder with weights of `type`: the configurations, and the
/// tokenizer's files if a tokenizer is given.
checkpoint::SmallFiles model_folder_files(
    const model::ModelConfig& config,
    at::ScalarType type,
    const text::Tokenizer* tokenizer,
    const model::GenerationConfig& generation = {});

/// Loads the tokenizer from `path`, or from the model's folder if `path` is empty. If
/// `chat_template` names a file, the tokenizer uses this template, and saves it with the model.
/// Throws Error (config) if there is no tokenizer.
std::shared_ptr<const text::Tokenizer> load_tokenizer(
    const std::string& path,
    const model::ModelSource& source,
    const std::string& chat_template = "");

/// Returns training.lr_scheduler_kwargs as a JSON object for the schedule.
std::string scheduler_arguments(const config::TrainingSection& training);

}  // namespace lockstep::train
