// Files in a run folder besides the tensors, and the source of its tokenizer.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/rank_status.h"
#include "model/source.h"
#include "temporary_folder.h"
#include "text/sample_tokenizer.h"
#include "train/checkpointing.h"
#include "train/merge.h"
#include "train/rank_places.h"
#include "watch/record/ranks.h"

namespace lockstep::train {
namespace run_folder_test {

using Json = nlohmann::json;

TEST(ModelFolderFiles, SayTheTypeAndHowATextEnds) {
  model::ModelConfig config = model::preset("gpt2-tiny");
  config.eos_token_ids = {5};
  config.bos_token_id = 4;
  config.pad_token_id.reset();
  checkpoint::SmallFiles files = model_folder_files(config, at::kBFloat16, nullptr);
  EXPECT_EQ(files.size(), 2U);
  EXPECT_NE(files.at("config.json").find("\"bfloat16\""), std::string::npos);
  EXPECT_EQ(
      Json::parse(files.at("generation_config.json")),
      (Json{{"_from_model_config", true}, {"bos_token_id", 4}, {"eos_token_id", 5}}));
  config.eos_token_ids = {5, 6};
  config.bos_token_id.reset();
  config.pad_token_id = 0;
  files = model_folder_files(config, at::kHalf, text::sample_tokenizer().get());
  EXPECT_EQ(
      Json::parse(files.at("generation_config.json")),
      (Json{{"_from_model_config", true}, {"eos_token_id", {5, 6}}, {"pad_token_id", 0}}));
  EXPECT_NE(files.at("config.json").find("\"float16\""), std::string::npos);
  EXPECT_TRUE(files.contains("tokenizer.json"));
}

TEST(ModelFolderFiles, AClassifierGeneratesNothing) {
  model::ModelConfig config = model::with_head(
      model::preset("gpt2-tiny"), {model::HeadSpec::Kind::kClassifier, {"a", "b"}});
  const auto files = model_folder_files(config, at::kFloat, nullptr);
  EXPECT_FALSE(files.contains("generation_config.json"));
  EXPECT_NE(files.at("config.json").find("ForSequenceClassification"), std::string::npos);
}

TEST(LoadTokenizer, ComesWithTheModelUnlessAnotherIsNamed) {
  const TemporaryFolder folder;
  for (const auto& [name, text] : text::sample_tokenizer()->files()) {
    write_file_atomically(folder.path() / name, text);
  }
  write_file_atomically(folder.path() / "chat.jinja", "{{ messages[0].content }}");
  model::ModelSource source = model::preset_source("gpt2-tiny");
  EXPECT_EQ(
      load_tokenizer(folder.path().string(), source)->fingerprint(),
      text::sample_tokenizer()->fingerprint());
  try {
    (void)load_tokenizer("", source);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(error.message().find("gpt2-tiny has no tokenizer"), std::string::npos);
  }
  source.folder = folder.path();
  EXPECT_EQ(
      load_tokenizer("", source)->vocabulary_size(), text::sample_tokenizer()->vocabulary_size());
  const auto chatty = load_tokenizer("", source, (folder.path() / "chat.jinja").string());
  EXPECT_EQ(chatty->files().at("chat_template.jinja"), "{{ messages[0].content }}");
  try {
    (void)load_tokenizer("", source, (folder.path() / "none.jinja").string());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("none.jinja"), std::string::npos);
  }
}

TEST(RankPlaces, AreInTheFolderAsLongAsTheRunGoesOn) {
  const TemporaryFolder folder;
  RankContext rank_context{.store = {}, .communicator = comm::Communicator::alone()};
  Job job;
  job.config.training.output_dir = folder.path().string();
  job.axes = std::make_unique<parallel::ParallelGroups>(rank_context.communicator, mesh::Mesh{});
  begin_rank_status(0, 1);
  {
    const RankPlaces places(job, rank_context);
    const auto found = watch::read_ranks(folder.path());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].process, ::getpid());
    EXPECT_EQ(found[0].host, watch::own_host());
  }
  EXPECT_THROW((void)watch::read_ranks(folder.path()), Error);
  job.config.training.output_dir = (folder.path() / "none").string();
  ::testing::internal::CaptureStderr();
  {
    const RankPlaces nowhere(job, rank_context);
  }
  EXPECT_NE(
      ::testing::internal::GetCapturedStderr().find("cannot be inspected from outside"),
      std::string::npos);
}

TEST(MergedWeights, AModelWithoutWeightsHasNoneToWrite) {
  try {
    MergedWeights(model::preset_source("gpt2-tiny"), std::nullopt);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(error.message().find("gpt2-tiny has no weights"), std::string::npos);
  }
}

}  // namespace run_folder_test
}  // namespace lockstep::train
