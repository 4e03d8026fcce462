// A run's checkpoints: what goes into them, and how a run comes back from one.
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

/// output_dir/checkpoint-<step>.
std::filesystem::path checkpoint_folder(const std::filesystem::path& output_dir, int64_t step);

/// Takes training.output_dir for this run, before anything is computed; where it is in an object
/// store, it becomes the folder of this machine's that the run works in. Error (environment) where
/// another run has it, or the ranks do not see one folder. Every rank must call.
void take_output(Job& job, RankContext& rank_context);

/// The folder that training.resume_from_checkpoint names: itself, or with "true" the latest good
/// checkpoint of output_dir; nothing where there is none yet. In a later round of a job, the latest
/// good one that the job wrote comes before all. Every rank must call.
std::optional<std::filesystem::path> find_checkpoint_to_resume(
    const Job& job, RankContext& rank_context);

inline constexpr std::string_view kTrainerState = "trainer_state.json";

/// What this rank writes: of each slice, the elements that it owns.
std::vector<checkpoint::Piece> owned_pieces(
    const Job& job, bool with_optimizer, const RankContext& rank_context);
/// Their bytes.
int64_t owned_bytes(const Job& job, bool with_optimizer);
/// What makes the weights a model folder, or an adapter's.
checkpoint::SmallFiles model_files(const Job& job);
/// state.json.
std::string state_json(const Job& job, const RankContext& rank_context);
/// Removes checkpoints beyond save_total_limit, on rank 0.
std::function<void()> rotation(const Job& job, const RankContext& rank_context);

/// Whether each machine has memory for so many bytes a rank. Every rank must call.
bool has_room(int64_t bytes, RankContext& rank_context);
/// All ranks, for a thread that runs beside training. Every rank must call.
comm::Communicator group_beside_training(RankContext& rank_context, const std::string& name);

/// The saver of a run that saves before its end, unless checkpoint.async=false or memory is short.
/// Every rank must call.
std::unique_ptr<checkpoint::AsyncSaver> make_saver(Job& job, RankContext& rank_context);

/// Writes output_dir/checkpoint-<step> and removes old ones beyond save_total_limit: in the
/// background where training goes on and there is a saver. Waits for the save before. Every rank
/// must call; each writes what it holds.
void save_training_state(Job& job, RankContext& rank_context, bool goes_on);

/// Seconds that this rank waited for others since the job began, in communication and in saves.
double seconds_for_others(const Job& job);

/// To be called before a GPU is given what writes to the state: a save may still be copying it.
void before_state_update(Job& job);

/// Throws what a save in the background failed of.
void wait_for_save(Job& job);

/// Reads weights, optimizer, schedule, sampler and counts back into the job. Every rank must call.
/// Returns the state of the monitor.
monitor::TrainerState restore_training_state(
    Job& job, const std::filesystem::path& folder, RankContext& rank_context);

/// The weights of the best checkpoint (load_best_model_at_end). Every rank must call.
void restore_best_weights(Job& job, RankContext& rank_context);

/// Makes `folder` a model folder of the weights as they are, or an adapter's. Every rank must call.
void export_model(Job& job, const std::filesystem::path& folder, RankContext& rank_context);
/// Makes output_dir itself a model folder, of the last checkpoint's files (linked, not copied).
/// Every rank must call.
void export_final_model(Job& job, RankContext& rank_context);

/// Hugging Face's name of a type of weights.
const char* type_name(at::ScalarType type);
/// What stands beside weights of `type` in a model folder: configurations, and the tokenizer's
/// files if there is one.
checkpoint::SmallFiles model_folder_files(
    const model::ModelConfig& config, at::ScalarType type, const text::Tokenizer* tokenizer);

/// The tokenizer of `path`, or of the model's folder, with the chat template of a file if one is
/// named: it is saved with the model. Error (config) where neither has a tokenizer.
std::shared_ptr<const text::Tokenizer> load_tokenizer(
    const std::string& path,
    const model::ModelSource& source,
    const std::string& chat_template = "");

/// training.lr_scheduler_kwargs as the schedule reads them: a JSON object of what was given.
std::string scheduler_arguments(const config::TrainingSection& training);

}  // namespace lockstep::train
