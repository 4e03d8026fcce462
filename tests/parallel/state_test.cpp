// Tests that checkpoints do not depend on the plan that wrote them.
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "parallel/plans.h"
#include "temporary_folder.h"

namespace lockstep::parallel {
namespace state_test {

namespace fs = std::filesystem;

std::vector<checkpoint::Piece> pieces_of(ParallelModel& model) {
  std::vector<checkpoint::Piece> pieces;
  model.visit_state(
      [&](const StateSlice& slice) { pieces.push_back(checkpoint::owned_piece(slice)); });
  return pieces;
}

/// Trains one step under the plan, or resumes from `from`, and saves to `to`.
void save_under(
    const mesh::Mesh& mesh,
    const std::string& json,
    const fs::path& from,
    const fs::path& to,
    const Plan& plan = {}) {
  const model::ModelConfig config = model::parse_model_config(json, "a test");
  comm::run_ranks(mesh.ranks(), [&](comm::Communicator& world) {
    ParallelGroups axes(world, mesh);
    const ModelSpec spec{
        config, at::kBFloat16, at::kCPU, fill_at_random(config, from.empty() ? 3 : 4)};
    const auto model = parallelize(spec, plan, axes);
    if (from.empty()) {
      const std::vector<nn::ForwardInputs> inputs{
          plan_inputs(config, 0, {0, kPlanRows}, kPlanLength)};
      (void)model->forward_backward(inputs, 100);
      model->optimizer_step(1e-2);
    } else {
      const auto saved = checkpoint::Checkpoint::open(from, world);
      model->visit_state(
          [&](const StateSlice& slice) { saved.read(checkpoint::held_piece(slice)); });
      model->state_changed();
    }
    checkpoint::save_checkpoint(to, pieces_of(*model), "{}", {}, world);
  });
}

std::map<std::string, std::string> tensor_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") {
      files[entry.path().filename().string()] = read_file(entry.path(), ErrorKind::kCheckpoint);
    }
  }
  return files;
}

TEST(State, GoesFromAnyPlanToAnyOtherWithTheSameBytes) {
  for (const char* json : {kOddGpt2, kOddLlama}) {
    const TemporaryFolder folder;
    const fs::path first = folder.path() / "one";
    save_under({}, json, {}, first);
    const auto expected = tensor_files(first);
    ASSERT_EQ(expected.size(), 2U);
    fs::path last = first;
    for (const mesh::Mesh& mesh :
         {mesh::Mesh{.tensor = 3},
          mesh::Mesh{.data = 2, .tensor = 2},
          mesh::Mesh{.pipeline = 2},
          mesh::Mesh{.data = 3},
          mesh::Mesh{.pipeline = 2, .data = 2, .tensor = 2},
          mesh::Mesh{.context = 2, .tensor = 4},
          mesh::Mesh{}}) {
      const fs::path next = folder.path() / mesh.text();
      save_under(mesh, json, last, next);
      EXPECT_TRUE(tensor_files(next) == expected) << mesh.text();
      last = next;
    }
  }
}

/// Experts unevenly distributed over ranks, with each ZeRO stage.
TEST(State, OfExpertsGoesFromAnyPlanToAnyOther) {
  const TemporaryFolder folder;
  const fs::path first = folder.path() / "one";
  save_under({}, kOddMixtral, {}, first);
  const auto expected = tensor_files(first);
  fs::path last = first;
  const std::vector<std::pair<mesh::Mesh, Plan>> plans{
      {{.data = 3}, {.zero_stage = 1, .expert_ranks = 3}},
      {{.data = 4}, {.zero_stage = 3, .expert_ranks = 2}},
      {{.context = 2, .tensor = 2}, {.expert_ranks = 2}},
      {{.pipeline = 2, .data = 2}, {.expert_ranks = 2}},
      {{}, {}}};
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto& [mesh, plan] = plans[i];
    const fs::path next = folder.path() / std::to_string(i);
    save_under(mesh, kOddMixtral, last, next, plan);
    EXPECT_TRUE(tensor_files(next) == expected) << mesh.text();
    last = next;
  }
}

}  // namespace state_test
}  // namespace lockstep::parallel
