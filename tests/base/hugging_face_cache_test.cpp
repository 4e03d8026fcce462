// Tests the location of the Hugging Face cache.
#include "base/hugging_face_cache.h"

#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace lockstep {
namespace hugging_face_cache_test {

EnvironmentLookup lookup(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(HuggingFaceCache, FoldersFollowTheVariables) {
  const auto hub = [](std::map<std::string, std::string> variables) {
    variables["HOME"] = "/home/someone";
    return hub_cache_folder(lookup(variables)).string();
  };
  EXPECT_EQ(hub({}), "/home/someone/.cache/huggingface/hub");
  EXPECT_EQ(hub({{"XDG_CACHE_HOME", "/xdg"}}), "/xdg/huggingface/hub");
  EXPECT_EQ(hub({{"XDG_CACHE_HOME", "/xdg"}, {"HF_HOME", "~/hf"}}), "/home/someone/hf/hub");
  EXPECT_EQ(hub({{"HF_HOME", "/hf"}, {"HF_HUB_CACHE", "/cache"}}), "/cache");
  EXPECT_EQ(hub({{"HUGGINGFACE_HUB_CACHE", "/old"}, {"HF_HUB_CACHE", ""}}), "/old");
  EXPECT_EQ(datasets_cache_folder(lookup({{"HF_HOME", "/hf"}})).string(), "/hf/datasets");
  EXPECT_EQ(datasets_cache_folder(lookup({{"HF_DATASETS_CACHE", "/d"}})).string(), "/d");
}

TEST(HuggingFaceCache, HomeIsExpandedAtTheStartAlone) {
  const EnvironmentLookup environment = lookup({{"HOME", "/home/someone"}});
  EXPECT_EQ(expand_home("~", environment).string(), "/home/someone/");
  EXPECT_EQ(expand_home("~/a", environment).string(), "/home/someone/a");
  EXPECT_EQ(expand_home("/a/~", environment).string(), "/a/~");
  EXPECT_EQ(expand_home("~a", environment).string(), "~a");
}

TEST(FilesOfRows, AreOneFileOrItsParts) {
  const TemporaryFolder folder;
  const auto names = [&](const char* name) {
    std::vector<std::string> found;
    for (const std::filesystem::path& file : files_of_rows(folder.path() / name)) {
      found.push_back(file.filename().string());
    }
    return found;
  };
  for (const char* name :
       {"a.csv",
        "a.parquet",
        "b-00001-of-00002.parquet",
        "b-00000-of-00002.parquet",
        "b-more.parquet",
        "bc-00000-of-00001.parquet",
        "c.txt"}) {
    std::ofstream(folder.path() / name) << "x";
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("a"), Names{"a.csv"});
  EXPECT_EQ(names("b"), (Names{"b-00000-of-00002.parquet", "b-00001-of-00002.parquet"}));
  EXPECT_EQ(names("c"), Names{});
  EXPECT_EQ(names("nowhere/a"), Names{});
}

}  // namespace hugging_face_cache_test
}  // namespace lockstep
