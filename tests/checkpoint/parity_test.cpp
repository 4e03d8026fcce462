// The C++ part of tests/parity/test_checkpoint.py, which sets LOCKSTEP_PARITY_FOLDER; skipped
// without it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "comm/threads.h"
#include "model/description.h"
#include "model/model_config.h"

namespace lockstep::checkpoint {
namespace parity_test {

namespace fs = std::filesystem;

/// Values of a parameter's elements, small enough to be exact in bfloat16.
at::Tensor values_of(int64_t parameter, int64_t elements) {
  return (at::arange(elements, at::kLong) * 7 + parameter).remainder(113).to(at::kFloat) / 64 - 0.5;
}

class Parity : public testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("LOCKSTEP_PARITY_FOLDER");
    if (folder == nullptr) {
      GTEST_SKIP() << "run by tests/parity/test_checkpoint.py";
    }
    folder_ = folder;
    config_ = model::parse_model_config(read_file(folder_ / "config.json"), "config.json");
  }

  fs::path folder_;
  model::ModelConfig config_;
};

TEST_F(Parity, SavesCheckpointsForTransformers) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const std::string dtype = type == at::kFloat ? "float32" : "bfloat16";
    std::vector<Piece> whole;
    for (const auto& parameter : model::parameters_of(config_)) {
      const auto number = static_cast<int64_t>(whole.size());
      whole.push_back(
          {"model",
           parameter.name,
           type,
           parameter.shape,
           0,
           values_of(number, parameter.elements()).to(type)});
    }
    for (const uint64_t most : {uint64_t{1} << 40, uint64_t{5000}}) {
      comm::run_ranks(3, [&](comm::Communicator& communicator) {
        SaveOptions options;
        options.max_file_bytes = most;
        save_checkpoint(
            folder_ / fmt::format("{}-{}", dtype, most == 5000 ? "shards" : "single"),
            share_of(whole, communicator.rank(), communicator.size()),
            "{}",
            {{"config.json", model::to_json(config_, dtype)}},
            communicator,
            options);
      });
    }
  }
}

TEST_F(Parity, ReadsWhatTransformersSaved) {
  std::vector<WantedTensor> wanted;
  for (const auto& parameter : model::parameters_of(config_)) {
    wanted.push_back({parameter.name, parameter.shape, {}});
    if (parameter.name == model::embedding_name(config_) && config_.tie_word_embeddings) {
      wanted.back().aliases = {"lm_head.weight"};
    }
  }
  for (const char* name : {"hf", "hf-shards", "hf-base"}) {
    SCOPED_TRACE(name);
    if (!fs::exists(folder_ / name)) {
      continue;  // a base model without a head is incomplete if the head is a separate tensor
    }
    ModelFolder model(folder_ / name);
    EXPECT_TRUE(model.match(wanted, ModelFolder::Aliases::kCompare).empty());
    for (size_t i = 0; i < wanted.size(); ++i) {
      at::Tensor read = at::empty(wanted[i].shape);
      model.read(wanted[i].name, 0, read);
      EXPECT_TRUE(read.view({-1}).equal(
          values_of(static_cast<int64_t>(i), read.numel()).to(read.scalar_type())))
          << wanted[i].name;
    }
  }
}

}  // namespace parity_test
}  // namespace lockstep::checkpoint
