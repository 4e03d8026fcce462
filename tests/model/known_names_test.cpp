// Tests for the files of model folders and the keys that have no effect. docs/models.md contains
// their tables.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "model/folder_files.h"
#include "model/known_keys.h"
#include "model/model_config.h"
#include "model/presets.h"
#include "temporary_folder.h"

namespace lockstep::model {
namespace {

using Strings = std::vector<std::string>;

/// Rows of a table: a reason, and the names that have it.
using Rows = std::vector<std::pair<std::string, Strings>>;

void add(Rows& rows, const std::string& reason, const std::string& name) {
  auto row = std::ranges::find(rows, reason, &std::pair<std::string, Strings>::first);
  if (row == rows.end()) {
    row = rows.insert(rows.end(), {reason, {}});
  }
  row->second.push_back(fmt::format("`{}`", name));
}

std::string table(const std::string& heading, const Rows& rows) {
  std::string text = fmt::format("| {} | names |\n|---|---|\n", heading);
  for (const auto& [reason, names] : rows) {
    text += fmt::format("| {} | {} |\n", reason, fmt::join(names, ", "));
  }
  return text;
}

Rows rows_of(std::span<const HarmlessKey> keys) {
  Rows rows;
  for (const HarmlessKey& key : keys) {
    add(rows, key.reason, key.key);
  }
  return rows;
}

Rows rows_of_files() {
  Rows rows;
  for (const KnownFile& file : known_files()) {
    const char* use = file.use == FileUse::kUsed                ? "used"
                      : file.use == FileUse::kKept              ? "kept"
                      : file.use == FileUse::kKeptWithTokenizer ? "kept with the tokenizer"
                                                                : "harmless";
    add(rows, fmt::format("{}: {}", use, file.reason), file.pattern);
  }
  return rows;
}

/// Checks the text between "<!-- NAME, by tests/model/known_names_test.cpp -->" and "<!-- end -->".
void expect_documented(const std::string& name, const std::string& text) {
  std::stringstream page;
  page << std::ifstream(LOCKSTEP_SOURCE_DIR "/docs/models.md").rdbuf();
  const std::string begin = fmt::format("<!-- {}, by tests/model/known_names_test.cpp -->\n", name);
  const size_t start = page.str().find(begin);
  ASSERT_NE(start, std::string::npos) << name;
  const size_t at = start + begin.size();
  EXPECT_EQ(page.str().substr(at, page.str().find("<!-- end -->", at) - at), text);
}

TEST(KnownNames, AreDocumented) {
  expect_documented("files", table("treatment", rows_of_files()));
  expect_documented("keys of config.json", table("reason", rows_of(harmless_config_keys())));
  expect_documented(
      "keys of generation_config.json", table("reason", rows_of(harmless_generation_keys())));
  Rows unsupported;
  for (const UnsupportedKey& key : unsupported_generation_keys()) {
    add(unsupported, fmt::format("`{}`", key.neutral), key.key);
  }
  expect_documented("unsupported generation keys", table("value without effect", unsupported));
}

TEST(KnownNames, EveryPresetUsesItsKeys) {
  for (const std::string& name : preset_names()) {
    EXPECT_EQ(unused_config_keys(preset(name).json, name), Strings()) << name;
  }
}

TEST(KnownNames, KeysThatAFamilyDoesNotReadAreFound) {
  auto config = nlohmann::json::parse(preset("llama-tiny").json);
  config.update(
      {{"rms_norm_epsilon", 1e-3}, {"use_cache", true}, {"n_embd", 3}, {"torch_dtype", "float32"}});
  EXPECT_EQ(
      unused_config_keys(config.dump(), "config.json"), (Strings{"n_embd", "rms_norm_epsilon"}));
}

TEST(KnownNames, FilesOfAFolder) {
  const TemporaryFolder folder;
  for (const char* name :
       {"config.json",
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "extra.safetensors",
        "quantize_config.json",
        "README.md",
        "loss.svg",
        "LICENSE",
        "preprocessor_config.json",
        "modeling_own.py",
        "tokenizer.model",
        "trainer_state.json",
        "tool.jinja"}) {
    std::ofstream(folder.path() / name) << "content of " << name;
  }
  std::filesystem::create_directory(folder.path() / "additional_chat_templates");
  std::filesystem::create_directory(folder.path() / "checkpoint-2");
  EXPECT_EQ(
      unknown_files(folder.path()),
      (Strings{
          "additional_chat_templates", "extra.safetensors", "quantize_config.json", "tool.jinja"}));
  Strings kept;
  for (const auto& [name, content] : kept_files(folder.path())) {
    EXPECT_EQ(content, "content of " + name);
    kept.push_back(name);
  }
  EXPECT_EQ(kept, (Strings{"LICENSE", "modeling_own.py", "preprocessor_config.json"}));
}

}  // namespace
}  // namespace lockstep::model
