// Implements the self-test of checkpoints.
#include <filesystem>
#include <stdexcept>

#include <ATen/ATen.h>
#include <unistd.h>

#include "base/format.h"
#include "base/temporary_folder.h"
#include "checkpoint/async_saver.h"
#include "cli/selftest_checks.h"
#include "nn/forward_context.h"
#include "parallel/parallelize.h"
#include "train/checkpointing.h"

namespace lockstep::cli {
namespace {

std::vector<checkpoint::Piece> owned_pieces(parallel::ParallelModel& model) {
  std::vector<checkpoint::Piece> pieces;
  model.visit_state(
      [&](const parallel::StateSlice& slice) { pieces.push_back(checkpoint::owned_piece(slice)); });
  return pieces;
}

/// Returns all state of a rank on the host, in the order of visit_state().
std::vector<at::Tensor> state_of(parallel::ParallelModel& model) {
  std::vector<at::Tensor> state;
  model.visit_state(
      [&](const parallel::StateSlice& slice) { state.push_back(slice.data.to(at::kCPU).clone()); });
  return state;
}

void read_into(parallel::ParallelModel& model, const checkpoint::Checkpoint& from) {
  model.visit_state(
      [&](const parallel::StateSlice& slice) { from.read(checkpoint::held_piece(slice)); });
  model.state_changed();
}

std::string save_and_read(train::RankContext& rank_context) {
  parallel::ParallelGroups axes(
      rank_context.communicator, {.data = rank_context.size()}, rank_context.group);
  parallel::ModelSpec spec = small_model(rank_context);
  const parallel::Plan plan{.zero_stage = 3};
  const auto model = parallelize(spec, plan, axes);
  spec.fill = parallel::fill_at_random(spec.config, 4);
  const auto other = parallelize(spec, plan, axes);
  nn::ForwardInputs inputs;
  inputs.ids = at::arange(2 * 32, at::kLong).remainder_(101).view({2, 32}).to(rank_context.device);
  inputs.targets = nn::next_tokens(inputs.ids);
  inputs.samples = at::arange(2 * rank_context.rank(), 2 * rank_context.rank() + 2, at::kLong);
  inputs.training = true;
  const auto begin_step = [&] {
    model->forward_backward({&inputs, 1}, int64_t{2} * 31 * rank_context.size());
  };
  begin_step();
  model->optimizer_step(1e-3);
  const bool is_one_machine = rank_context.local_size == rank_context.size();
  const std::filesystem::path folder = train::on_first_rank(rank_context.communicator, [&] {
    const auto where = is_one_machine ? temporary_folder() : std::filesystem::current_path();
    const auto made = where / fmt::format("lockstep-selftest-{}", ::getpid());
    std::filesystem::create_directories(made);
    return made.string();
  });
  const auto written = folder / "checkpoint-1";
  const std::vector<at::Tensor> saved = state_of(*model);
  checkpoint::AsyncSaver saver(train::group_beside_training(rank_context, "selftest checkpoint"));
  saver.save(written, owned_pieces(*model), "{}", {}, {.finite = true});
  begin_step();
  saver.before_state_update();
  model->optimizer_step(1e-3);
  saver.wait();
  read_into(*other, checkpoint::Checkpoint::open(written, rank_context.communicator));
  const std::vector<at::Tensor> read = state_of(*other);
  train::on_first_rank(rank_context.communicator, [&] {
    std::filesystem::remove_all(folder);
    return "";
  });
  int64_t bytes = 0;
  for (size_t i = 0; i < saved.size(); ++i) {
    if (!saved[i].equal(read.at(i))) {
      throw std::runtime_error(fmt::format("piece {} of the state differs from the saved one", i));
    }
    bytes += static_cast<int64_t>(saved[i].nbytes());
  }
  return fmt::format("{} tensors, {} KB", saved.size(), bytes / 1000);
}

}  // namespace

std::vector<Check> check_checkpoint(train::RankContext& rank_context) {
  return {check_on_all_ranks(
      rank_context, "checkpoint", "saved and read", [&] { return save_and_read(rank_context); })};
}

}  // namespace lockstep::cli
