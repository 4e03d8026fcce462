// Reading Hugging Face model folders by tensor name.
#include "checkpoint/model_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/format.h"
#include "expect_error.h"
#include "mutator.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace model_folder_test {

using Tensors = std::map<std::string, at::Tensor>;

void write_tensors(const std::filesystem::path& path, const Tensors& tensors, size_t shift = 0) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, file_dtype(tensor.scalar_type()), tensor.sizes().vec()});
  }
  EncodedHeader encoded = encode_safetensors_header(entries);
  if (shift > 0) {  // other writers may not pad the header, so the data can have any alignment
    encoded.bytes.append(shift, ' ');
    encoded.bytes[0] = static_cast<char>(encoded.bytes[0] + static_cast<char>(shift));
  }
  for (const TensorEntry& entry : encoded.layout.tensors) {
    const at::Tensor tensor = tensors.at(entry.name).contiguous();
    encoded.bytes.append(static_cast<const char*>(tensor.data_ptr()), entry.bytes());
  }
  write_file_atomically(path, encoded.bytes);
}

Tensors some_tensors() {
  return {
      {"wte.weight", at::arange(21, at::kFloat).view({7, 3}) / 3},
      {"h.0.attn.c_attn.weight", at::arange(27, at::kFloat).view({3, 9}).to(at::kBFloat16)},
      {"h.0.attn.bias", at::ones({1, 1, 4, 4})},
      {"h.0.attn.masked_bias", at::ones({})},
      {"h.0.attn.attention.bias", at::ones({1, 1, 4, 4})},
      {"layers.0.attention.masked_bias", at::ones({})},
      {"ln_f.weight", at::full({1}, 0.1, at::kDouble)}};
}

TEST(ModelFolder, ReadsRangesInEveryFloatingType) {
  const TemporaryFolder folder;
  for (const size_t shift : {0, 1, 3}) {
    write_tensors(folder.path() / "model.safetensors", some_tensors(), shift);
    const ModelFolder model(folder.path());
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      at::Tensor part = at::zeros({5}, type);
      model.read("transformer.wte.weight", 4, part);
      EXPECT_TRUE(part.equal((at::arange(4, 9, at::kFloat) / 3).to(type))) << shift;
    }
    at::Tensor whole = at::zeros({3, 9});
    model.read("h.0.attn.c_attn.weight", 0, whole);
    EXPECT_TRUE(whole.equal(at::arange(27, at::kFloat).view({3, 9})));
    at::Tensor none = at::zeros({0});
    model.read("wte.weight", 21, none);
    EXPECT_TRUE(model.files().read_whole("wte.weight").equal(some_tensors().at("wte.weight")));
  }
}

TEST(ModelFolder, ReadsWhatIsLongerThanACopy) {
  const TemporaryFolder folder;
  constexpr int64_t kLength = (40 << 20) / 4 + 1001;  // exceeds the read-ahead
  const at::Tensor numbers = at::arange(kLength, at::kFloat);
  for (const size_t shift : {0, 1}) {
    write_tensors(folder.path() / "model.safetensors", {{"wte.weight", numbers}}, shift);
    const ModelFolder model(folder.path());
    at::Tensor part = at::zeros({kLength - 7}, at::kDouble);
    model.read("wte.weight", 5, part);
    EXPECT_TRUE(part.equal(numbers.narrow(0, 5, kLength - 7).to(at::kDouble))) << shift;
    EXPECT_TRUE(model.files().read_whole("wte.weight").equal(numbers)) << shift;
  }
}

TEST(ModelFolder, ReadsTypesThatAreNotFloatingAsTheyAre) {
  const TemporaryFolder folder;
  write_tensors(
      folder.path() / "model.safetensors",
      {{"a", at::arange(3, at::kLong)}, {"s", at::full({}, 7, at::kInt)}});
  const ModelFolder model(folder.path());
  at::Tensor two = at::zeros({2}, at::kLong);
  model.read("a", 1, two);
  EXPECT_TRUE(two.equal(at::arange(1, 3, at::kLong)));
  EXPECT_EQ(model.files().read_whole("s").item<int>(), 7);
  expect_error(
      ErrorKind::kData, {"\"a\"", "I64", "Float"}, [&] { model.read("a", 0, at::zeros({1})); });
}

TEST(ModelFolder, RefusesRangesBeyondATensor) {
  const TemporaryFolder folder;
  write_tensors(folder.path() / "model.safetensors", some_tensors());
  const ModelFolder model(folder.path());
  for (const int64_t begin : {-1L, 17L, 22L, INT64_MAX}) {
    expect_error(ErrorKind::kData, {"wte.weight", "[7, 3]", "model.safetensors"}, [&] {
      model.read("wte.weight", begin, at::zeros({5}));
    });
  }
  expect_error(ErrorKind::kData, {"wte.weigth", "Did you mean 'wte.weight'"}, [&] {
    model.read("wte.weigth", 0, at::zeros({5}));
  });
}

const std::vector<WantedTensor> kWanted = {
    {"transformer.wte.weight", {7, 3}, {"lm_head.weight"}},
    {"transformer.h.0.attn.c_attn.weight", {3, 9}},
    {"transformer.ln_f.weight", {1}}};

TEST(ModelFolder, FindsAMatrixInAStackWhereItHasNoTensorOfItsOwn) {
  const TemporaryFolder folder;
  const at::Tensor stack = at::arange(24, at::kFloat).view({2, 4, 3});
  write_tensors(folder.path() / "model.safetensors", {{"stack", stack}, {"own", at::ones({2, 3})}});
  ModelFolder model(folder.path());
  const StackedTensor second_half{"stack", {2, 4, 3}, 18};
  const std::vector<WantedTensor> wanted{
      {"own", {2, 3}, {}, StackedTensor{"stack", {2, 4, 3}, 0}},
      {"other", {2, 3}, {}, second_half}};
  EXPECT_TRUE(model.match(wanted).empty());
  at::Tensor part = at::zeros({4});
  model.read("other", 1, part);
  EXPECT_TRUE(part.equal(at::arange(19, 23, at::kFloat)));
  model.read("own", 0, part);
  EXPECT_TRUE(part.equal(at::ones({4})));
  const std::vector<WantedTensor> wrong{
      {"other", {2, 3}, {}, StackedTensor{"stack", {2, 3, 3}, 0}}};
  expect_error(
      ErrorKind::kData, {"stack", "[2, 4, 3]", "[2, 3, 3]"}, [&] { (void)model.match(wrong); });
}

TEST(ModelFolder, MatchesWithAndWithoutThePrefixAndPassesOverBuffers) {
  const TemporaryFolder folder;
  write_tensors(folder.path() / "model.safetensors", some_tensors());
  EXPECT_TRUE(ModelFolder(folder.path()).match(kWanted).empty());
  Tensors prefixed;
  for (const auto& [name, tensor] : some_tensors()) {
    prefixed["transformer." + name] = tensor;
  }
  prefixed["score.weight"] = at::ones({2});
  prefixed["transformer.h.x.attn.bias"] = at::ones({2});
  write_tensors(folder.path() / "model.safetensors", prefixed);
  EXPECT_EQ(
      ModelFolder(folder.path()).match(kWanted),
      (std::vector<std::string>{"score.weight", "transformer.h.x.attn.bias"}));
}

TEST(ModelFolder, FindsATiedTensorUnderItsOtherName) {
  const TemporaryFolder folder;
  Tensors tensors = some_tensors();
  tensors["lm_head.weight"] = tensors["wte.weight"];
  const auto path = folder.path() / "model.safetensors";
  write_tensors(path, tensors);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ModelFolder(folder.path()).match(kWanted, ModelFolder::Aliases::kCompare).empty());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  tensors["lm_head.weight"] = tensors["wte.weight"] + 1;
  write_tensors(path, tensors);
  testing::internal::CaptureStderr();
  ModelFolder(folder.path()).match(kWanted, ModelFolder::Aliases::kCompare);
  EXPECT_NE(
      testing::internal::GetCapturedStderr().find("\"wte.weight\" and \"lm_head.weight\" are one"),
      std::string::npos);
  tensors.erase("wte.weight");
  write_tensors(path, tensors);
  ModelFolder model(folder.path());
  EXPECT_TRUE(model.match(kWanted).empty());
  at::Tensor read = at::zeros({1});
  model.read("transformer.wte.weight", 3, read);
  EXPECT_EQ(read.item<float>(), 2.0F);
}

TEST(ModelFolder, TellsAllThatDoesNotFitAtOnce) {
  const TemporaryFolder folder;
  Tensors tensors = some_tensors();
  tensors["wte.weight"] = at::ones({8, 3});
  tensors.erase("ln_f.weight");
  write_tensors(folder.path() / "model.safetensors", tensors);
  expect_error(
      ErrorKind::kData,
      {"is missing 1 of the model's 3 tensors: \"transformer.ln_f.weight\"",
       "\"wte.weight\"",
       "model.safetensors has shape [8, 3]; the model needs [7, 3]"},
      [&] { ModelFolder(folder.path()).match(kWanted); });
}

class ShardedFolder : public testing::Test {
 protected:
  ShardedFolder() {
    const Tensors tensors = some_tensors();
    Tensors first, second;
    for (const auto& [name, tensor] : tensors) {
      (name.starts_with("h.") ? first : second)[name] = tensor;
    }
    write_tensors(folder_.path() / kFirst, first);
    write_tensors(folder_.path() / kSecond, second);
    first_names_ = first.size();
    second_names_ = second.size();
    for (const auto& [name, tensor] : tensors) {
      map_ += fmt::format(
          "{}\"{}\":\"{}\"",
          map_.empty() ? "" : ",",
          name,
          name.starts_with("h.") ? kFirst : kSecond);
    }
  }
  void write_index(const std::string& map) {
    write_file_atomically(
        folder_.path() / "model.safetensors.index.json",
        fmt::format("{{\"metadata\":{{\"total_size\":1}},\"weight_map\":{{{}}}}}", map));
  }
  void expect_rejected(const std::vector<std::string>& texts) {
    expect_error(ErrorKind::kData, texts, [&] { ModelFolder{folder_.path()}; });
  }
  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";
  const TemporaryFolder folder_;
  std::string map_;
  size_t first_names_ = 0, second_names_ = 0;
};

TEST_F(ShardedFolder, Opens) {
  write_index(map_);
  ModelFolder model(folder_.path());
  EXPECT_TRUE(model.match(kWanted).empty());
  EXPECT_EQ(model.files().files(), (std::vector<std::string>{kFirst, kSecond}));
  at::Tensor part = at::zeros({2});
  model.read("transformer.wte.weight", 3, part);
  EXPECT_EQ(part[0].item<float>(), 1.0F);
}

TEST_F(ShardedFolder, RejectsHostileIndexes) {
  for (const char* name :
       {"../x.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\\\b", "a\\u0000b"}) {
    write_index(map_ + fmt::format(",\"evil\":\"{}\"", name));
    expect_rejected({"index.json", "\"evil\"", "not a file name in the same folder"});
  }
  write_index(map_ + ",\"evil\":7");
  expect_rejected({"\"evil\"", "no text"});
  write_index(map_ + fmt::format(",\"ghost\":\"{}\"", kFirst));
  expect_rejected({"\"ghost\" is missing from", kFirst});
  write_index(map_ + ",\"ghost\":\"model-00003-of-00003.safetensors\"");
  expect_rejected({"model-00003-of-00003.safetensors", "No such file"});
  write_index(map_ + fmt::format(",\"wte.weight\":\"{}\"", kSecond));
  expect_rejected({"\"wte.weight\" twice"});
  write_file_atomically(folder_.path() / "model.safetensors.index.json", "{\"weight_map\":[]}");
  expect_rejected({"index.json", "no object \"weight_map\""});
  write_file_atomically(folder_.path() / "model.safetensors.index.json", "{");
  expect_rejected({"index.json", "not JSON"});
}

TEST_F(ShardedFolder, MutatedIndexesAreErrorsOrSafe) {
  write_index(map_);
  const auto path = folder_.path() / "model.safetensors.index.json";
  const std::string good = read_file(path);
  Mutator mutator(5);
  for (int64_t i = fuzz_rounds(3000); i > 0; --i) {
    const std::string text = mutator.mutate(good);
    File file(path, File::Mode::kCreate, ErrorKind::kData);
    file.write_at(0, std::as_bytes(std::span(text)));
    try {
      const size_t names = ModelFolder(folder_.path()).files().names().size();
      EXPECT_TRUE(
          names == first_names_ || names == second_names_ || names == first_names_ + second_names_)
          << names;  // from one file or from both
    } catch (const Error& error) {
      EXPECT_LT(error.message().size(), 2000U);
    }
  }
}

TEST_F(ShardedFolder, RejectsATensorInTwoFiles) {
  Tensors both{{"wte.weight", at::ones({7, 3})}, {"h.0.attn.bias", at::ones({1})}};
  write_tensors(folder_.path() / kFirst, both);
  write_index(fmt::format("\"h.0.attn.bias\":\"{}\",\"wte.weight\":\"{}\"", kFirst, kSecond));
  expect_rejected({"\"wte.weight\" is in both", kFirst, kSecond});
}

TEST(ModelFolder, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  expect_error(
      ErrorKind::kData, {"neither model.safetensors nor"}, [&] { ModelFolder{folder.path()}; });
  write_file_atomically(folder.path() / "pytorch_model.bin", "pickle");
  expect_error(ErrorKind::kData, {"never unpickled", "save_pretrained"}, [&] {
    ModelFolder{folder.path()};
  });
}

}  // namespace model_folder_test
}  // namespace lockstep::checkpoint
