// Saving and loading checkpoints over several ranks.
#include "checkpoint/checkpoint.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/file_plan.h"
#include "comm/threads.h"
#include "expect_error.h"
#include "saving.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace checkpoint_test {

namespace fs = std::filesystem;

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename()] = read_file(entry.path());
  }
  return files;
}

TEST(Checkpoint, IsTheSameFilesWhateverTheRanks) {
  const TemporaryFolder folder;
  std::map<std::string, std::string> first;
  for (const int ranks : {1, 2, 3, 4}) {
    const fs::path output = folder.path() / std::to_string(ranks);
    comm::run_ranks(
        ranks, [&](comm::Communicator& communicator) { save_sample(output, 7, communicator); });
    const auto files = contents(output / "checkpoint-7");
    if (first.empty()) {
      first = files;
      std::vector<std::string> names;
      for (const auto& [name, text] : files) {
        names.push_back(name);
      }
      EXPECT_EQ(
          names,
          (std::vector<std::string>{
              "config.json",
              "empty",
              "manifest.json",
              "model.safetensors",
              "optimizer-00001-of-00001.safetensors",
              "optimizer.safetensors.index.json",
              "state.json",
              "trainer_state.json"}));
    }
    EXPECT_EQ(files, first) << ranks;
    EXPECT_EQ(std::distance(fs::directory_iterator(output), {}), 1);
  }
}

TEST(Checkpoint, IsReadByAnyNumberOfRanks) {
  const TemporaryFolder folder;
  comm::run_ranks(
      4, [&](comm::Communicator& communicator) { save_sample(folder.path(), 9, communicator); });
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, [&](comm::Communicator& communicator) {
      const auto checkpoint = Checkpoint::open(folder.path() / "checkpoint-9", communicator);
      expect_sample(checkpoint, 9, communicator.rank(), communicator.size());
      const auto latest = latest_checkpoint(folder.path(), communicator);
      ASSERT_TRUE(latest);
      EXPECT_EQ(latest->folder(), folder.path() / "checkpoint-9");
      expect_sample(*latest, 9, communicator.rank(), communicator.size());
    });
  }
}

TEST(Checkpoint, DealsTensorsIntoFilesAndConvertsTypes) {
  const TemporaryFolder folder;
  const at::Tensor values = at::arange(30, at::kFloat) / 7;
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    const int64_t rank = communicator.rank();
    // Rank 1 has one element of "a" and all of "c"; rank 0 has the rest. "b" is float32, rounded to
    // bfloat16 when saved.
    std::vector<Piece> pieces{
        {"model",
         "a",
         at::kFloat,
         {5, 6},
         rank * 29,
         values.narrow(0, rank * 29, rank == 0 ? 29 : 1)},
        {"model", "b", at::kBFloat16, {30}, 0, rank == 0 ? values : at::Tensor()},
        {"model",
         "c",
         at::kFloat,
         {2, 15},
         rank == 0 ? 30 : 0,
         rank == 0 ? values.narrow(0, 0, 0) : values}};
    SaveOptions options;
    options.max_file_bytes = 180;  // "a" is 120 bytes, "b" 60, "c" 120
    save_checkpoint(folder.path() / "checkpoint-1", pieces, "{}", {}, communicator, options);
    const auto checkpoint = Checkpoint::open(folder.path() / "checkpoint-1/", communicator);
    EXPECT_EQ(
        checkpoint.group("model").files(),
        (std::vector<std::string>{
            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}));
    EXPECT_TRUE(checkpoint.group("model").read_whole("a").equal(values.view({5, 6})));
    EXPECT_TRUE(checkpoint.group("model").read_whole("b").equal(values.to(at::kBFloat16)));
    EXPECT_TRUE(checkpoint.group("model").read_whole("c").equal(values.view({2, 15})));
    EXPECT_FALSE(checkpoint.has_group("optimizer"));
  });
  const auto index = read_json(folder.path() / "checkpoint-1" / "model.safetensors.index.json");
  EXPECT_EQ(index["metadata"]["total_size"], 300);
  EXPECT_EQ(index["weight_map"]["c"], "model-00002-of-00002.safetensors");
  EXPECT_EQ(ModelFolder(folder.path() / "checkpoint-1").files().names().size(), 3U);
}

/// Two matrices of a stacked tensor: rank 0 has columns 0 to 2 of the first, rank 1 has its other
/// columns and the second matrix.
TEST(Checkpoint, WritesAndReadsTensorsThatLieInOne) {
  const TemporaryFolder folder;
  const at::Tensor stack = at::arange(24, at::kFloat).view({2, 3, 4});
  const auto pieces_of = [&](int64_t rank, const auto& data) {
    const mesh::Range columns = rank == 0 ? mesh::Range{0, 3} : mesh::Range{3, 4};
    const mesh::Cut cut{1, {columns}};
    const auto place = [](int64_t offset) { return StackedTensor{"w", {2, 3, 4}, offset}; };
    std::vector<Piece> pieces{
        {"model",
         "w.0",
         at::kFloat,
         {3, 4},
         0,
         data(stack[0].slice(1, columns.begin, columns.end)),
         cut,
         place(0)}};
    if (rank == 1) {
      pieces.push_back({"model", "w.1", at::kFloat, {3, 4}, 0, data(stack[1]), {}, place(12)});
    }
    return pieces;
  };
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    const auto dense = [](const at::Tensor& x) { return x.contiguous(); };
    save_checkpoint(
        folder.path() / "checkpoint-1",
        pieces_of(communicator.rank(), dense),
        "{}",
        {},
        communicator);
    const auto checkpoint = Checkpoint::open(folder.path() / "checkpoint-1", communicator);
    EXPECT_EQ(checkpoint.group("model").names(), std::vector<std::string>{"w"});
    EXPECT_TRUE(checkpoint.group("model").read_whole("w").equal(stack));
    const auto empty = [](const at::Tensor& x) { return at::zeros(x.sizes()); };
    const auto read = pieces_of(communicator.rank(), empty);
    checkpoint.read(read);
    const auto wanted = pieces_of(communicator.rank(), dense);
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_TRUE(read[i].data.equal(wanted[i].data)) << read[i].name;
    }
  });
  expect_error(ErrorKind::kInternal, {"no rank has elements 12 to 23 of \"w\" [2, 3, 4]"}, [&] {
    comm::run_ranks(2, [&](comm::Communicator& communicator) {
      auto pieces =
          pieces_of(communicator.rank(), [](const at::Tensor& x) { return x.contiguous(); });
      pieces.resize(1);
      save_checkpoint(folder.path() / "checkpoint-2", pieces, "{}", {}, communicator);
    });
  });
}

TEST(Checkpoint, RefusesPiecesThatAreNotTheWholeOnce) {
  const TemporaryFolder folder;
  const auto save = [&](const std::function<std::vector<Piece>(int64_t)>& pieces) {
    comm::run_ranks(2, [&](comm::Communicator& communicator) {
      save_checkpoint(
          folder.path() / "checkpoint-1", pieces(communicator.rank()), "{}", {}, communicator);
    });
  };
  const at::Tensor ten = at::zeros({10});
  const auto piece = [&](int64_t begin, int64_t count, std::vector<int64_t> shape = {4, 5}) {
    return std::vector<Piece>{{"model", "w", at::kFloat, shape, begin, ten.narrow(0, 0, count)}};
  };
  const auto expect_refused = [&](const std::string& text, auto pieces) {
    expect_error(ErrorKind::kInternal, {text, "saving ", "checkpoint-1"}, [&] { save(pieces); });
  };
  expect_refused("no rank has elements 8 to 9 of \"w\" [4, 5]", [&](int64_t r) {
    return r == 0 ? piece(0, 8) : piece(10, 10);
  });
  expect_refused("no rank has element 19 of \"w\" [4, 5]", [&](int64_t r) {
    return r == 0 ? piece(0, 10) : piece(10, 9);
  });
  expect_refused(
      "elements 7 to 9 of \"w\" [4, 5] overlap between rank 0 and rank 1",
      [&](int64_t r) { return r == 0 ? piece(0, 10) : piece(7, 10); });
  expect_refused("rank 1 has elements 15 to 24 of \"w\", but its shape is [4, 5]", [&](int64_t r) {
    return r == 0 ? piece(0, 10) : piece(15, 10);
  });
  expect_refused("\"w\" is F32 [4, 5] on rank 0 and F32 [5, 4] on rank 1", [&](int64_t r) {
    return r == 0 ? piece(0, 10) : piece(10, 10, {5, 4});
  });
  expect_refused("\"w\" has the invalid shape [-1]", [&](int64_t) { return piece(0, 1, {-1}); });
  expect_refused("rank 1: the piece of tensor \"w\" is not contiguous", [&](int64_t r) {
    auto pieces = piece(0, 10);
    pieces[0].data = r == 0 ? ten : at::zeros({10, 2}).select(1, 0);
    return pieces;
  });
  expect_refused("is Long, which cannot be converted to F32", [&](int64_t) {
    auto pieces = piece(0, 10);
    pieces[0].data = ten.to(at::kLong);
    return pieces;
  });
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Checkpoint, RefusesNamesAndStatesThatCannotBe) {
  const TemporaryFolder folder;
  auto alone = comm::Communicator::alone();
  const auto save = [&](const std::string& state, const SmallFiles& files) {
    return [&alone, &folder, state, files] {
      save_checkpoint(folder.path() / "checkpoint-1", sample_tensors(1), state, files, alone);
    };
  };
  expect_error(ErrorKind::kCheckpoint, {"\"../x\""}, save("{}", {{"../x", ""}}));
  expect_error(ErrorKind::kCheckpoint, {"\"manifest.json\""}, save("{}", {{"manifest.json", ""}}));
  expect_error(
      ErrorKind::kCheckpoint, {"\"model.safetensors\""}, save("{}", {{"model.safetensors", ""}}));
  expect_error(ErrorKind::kCheckpoint, {"state.json is not JSON"}, save("{", {}));
  fs::create_directories(folder.path() / "checkpoint-1");
  write_file_atomically(folder.path() / "checkpoint-1" / "optimizer.pt", "another program's");
  expect_error(
      ErrorKind::kCheckpoint, {"is not a Lockstep checkpoint", "move it away"}, save("{}", {}));
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(folder.path()), {}), 2);
}

TEST(Checkpoint, TellsEverythingThatDoesNotFit) {
  const TemporaryFolder folder;
  auto alone = comm::Communicator::alone();
  save_sample(folder.path(), 1, alone);
  const auto checkpoint = Checkpoint::open(folder.path() / "checkpoint-1", alone);
  std::vector<ExpectedTensor> expected;
  for (const Piece& piece : sample_tensors(1)) {
    expected.push_back({piece.file_group, piece.name, piece.shape, piece.dtype});
  }
  EXPECT_NO_THROW(checkpoint.check(expected));
  expected.push_back({"model", "transformer.new", {3}});
  std::erase_if(expected, [](const auto& tensor) { return tensor.name == "transformer.one"; });
  for (ExpectedTensor& tensor : expected) {
    if (tensor.name == "transformer.wte.weight") {
      tensor.shape = {14, 5};
    } else if (tensor.name == "transformer.wte.weight.master") {
      tensor.dtype = at::kBFloat16;
    }
  }
  expect_error(
      ErrorKind::kCheckpoint,
      {"have no tensor \"transformer.new\" [3]",
       "\"transformer.wte.weight\" in",
       "model.safetensors is BF16 [13, 5]; expected BF16 [14, 5]",
       "optimizer-00001-of-00001.safetensors is F32 [13, 5]; expected BF16 [13, 5]",
       "model.safetensors has the tensor \"transformer.one\", which this model does not have"},
      [&] { checkpoint.check(expected); });
  EXPECT_EQ(exit_code(ErrorKind::kCheckpoint), 4);
  expect_error(ErrorKind::kCheckpoint, {"no \"x.json\""}, [&] { checkpoint.file("x.json"); });
  expect_error(ErrorKind::kCheckpoint, {"no lora tensors"}, [&] { checkpoint.group("lora"); });
  expect_error(ErrorKind::kCheckpoint, {"\"transformer.one\"", "[2]"}, [&] {
    checkpoint.read(
        std::vector<Piece>{{"model", "transformer.one", at::kFloat, {2}, 0, at::zeros({2})}});
  });
}

TEST(Checkpoint, ReplacesAnOlderOneOfTheSameStep) {
  for (const bool can_exchange : {true, false}) {
    const TemporaryFolder folder;
    auto alone = comm::Communicator::alone();
    FaultyDisk disk(FaultyDisk::Fault::kNone, 0);
    disk.can_exchange = can_exchange;
    SaveOptions options;
    options.disk = &disk;
    save_sample(folder.path(), 1, alone, options);
    save_checkpoint(
        folder.path() / "checkpoint-1",
        sample_tensors(5),
        sample_state(5),
        sample_files(),
        alone,
        options);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
    expect_sample(*latest_checkpoint(folder.path(), alone), 5, 0, 1);
  }
}

TEST(SaveModel, PutsAModelBesideOtherThings) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "metrics.jsonl", "kept");
  std::vector<Piece> whole;
  for (const Piece& piece : sample_tensors(3)) {
    if (piece.file_group == "model") {
      whole.push_back(piece);
    }
  }
  for (const uint64_t most :
       {1000, 100, 80, 1000}) {  // one file, several files, a different split, and one file again
    comm::run_ranks(3, [&](comm::Communicator& communicator) {
      SaveOptions options;
      options.max_file_bytes = most;
      save_model(
          folder.path(),
          share_of(whole, communicator.rank(), communicator.size()),
          {{"config.json", "{}"}},
          communicator,
          options);
    });
    const ModelFolder model(folder.path());
    EXPECT_EQ(model.files().names().size(), whole.size());
    for (const Piece& piece : whole) {
      EXPECT_TRUE(model.files().read_whole(piece.name).view({-1}).equal(piece.data)) << piece.name;
    }
    size_t weights = 0;
    for (const auto& [name, text] : contents(folder.path())) {
      weights += name.ends_with(".safetensors") ? 1 : 0;
    }
    EXPECT_EQ(weights, model.files().files().size());
    EXPECT_EQ(read_file(folder.path() / "metrics.jsonl"), "kept");
    EXPECT_FALSE(fs::exists(folder.path() / ".saving"));
  }
}

TEST(SaveModel, AKillBetweenItsFilesLeavesNoMixtureOfTwoModels) {
  const auto model_of = [](int64_t salt) {
    std::vector<Piece> pieces = sample_tensors(salt);
    std::erase_if(pieces, [](const Piece& piece) { return piece.file_group != "model"; });
    return pieces;
  };
  const std::vector<Piece> old_one = model_of(3), new_one = model_of(4);
  auto alone = comm::Communicator::alone();
  bool is_killed = true;
  for (int64_t at = 0; is_killed; ++at) {
    const TemporaryFolder folder;
    SaveOptions options;
    options.max_file_bytes = 100;  // several files
    save_model(folder.path(), old_one, {{"config.json", "{}"}}, alone, options);
    FaultyDisk disk(FaultyDisk::Fault::kKill, at);
    options.disk = &disk;
    try {
      save_model(folder.path(), new_one, {{"config.json", "{}"}}, alone, options);
      is_killed = false;
    } catch (const Killed&) {
    }
    size_t olds = 0, news = 0;
    try {
      const ModelFolder model(folder.path());
      for (size_t i = 0; i < old_one.size(); ++i) {
        const at::Tensor values = model.files().read_whole(old_one[i].name).view({-1});
        olds += values.equal(old_one[i].data) ? 1 : 0;
        news += values.equal(new_one[i].data) ? 1 : 0;
      }
    } catch (const Error&) {
      continue;  // not a model, which its reader notices
    }
    EXPECT_TRUE(olds == old_one.size() || news == old_one.size()) << at;
    EXPECT_TRUE(is_killed || news == old_one.size());
  }
}

TEST(Pieces, AreSharedByBytesWithoutLoss) {
  for (const int64_t salt : {0, 1}) {
    auto whole = sample_tensors(salt);
    if (salt == 1) {
      whole.resize(3);
    }
    for (int size = 1; size <= 40; ++size) {
      std::vector<std::string> descriptions;
      int64_t least = INT64_MAX, most = 0;
      for (int rank = 0; rank < size; ++rank) {
        const auto share = share_of(whole, rank, size);
        int64_t bytes = 0;
        for (const Piece& piece : share) {
          bytes += static_cast<int64_t>(piece.data.nbytes());
        }
        least = std::min(least, bytes);
        most = std::max(most, bytes);
        descriptions.push_back(describe_pieces(share));
      }
      EXPECT_EQ(combine_pieces(descriptions).size(), whole.size()) << size;
      EXPECT_LE(most - least, 8) << size;
    }
  }
  EXPECT_TRUE(share_of({}, 0, 2).empty());
}

TEST(Checkpoint, IsNotWrittenWithANumberThatIsNotFiniteWhereThatIsAskedFor) {
  const TemporaryFolder folder;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int ranks : {1, 3}) {
    comm::run_ranks(ranks, [&](comm::Communicator& communicator) {
      save_sample(folder.path(), 7, communicator);
      const auto before = contents(folder.path() / "checkpoint-7");
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
        for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
          // The bad value is the last element, and the tensor exceeds one write.
          const at::Tensor values = at::full({(1 << 20) + 5}, 3.5, type);
          values[-1] = bad;
          const bool is_whole = communicator.rank() == ranks - 1;
          const std::vector<Piece> pieces{
              {"model", "weight", type, {values.numel()}, 0, is_whole ? values : at::Tensor()}};
          const auto save = [&](const SaveOptions& options) {
            save_checkpoint(
                folder.path() / "checkpoint-7", pieces, sample_state(7), {}, communicator, options);
          };
          expect_error(
              ErrorKind::kNumeric,
              {"\"weight\" is ", "checkpoint-7", ranks == 1 ? "a value" : "rank 2: a value"},
              [&] { save({.finite = true}); });
          if (communicator.rank() == 0) {
            EXPECT_EQ(contents(folder.path() / "checkpoint-7"), before);
            EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
          }
          comm::gather_strings(
              communicator, "");  // all ranks inspect the folder before the next save
        }
      }
    });
  }
  // Without the option, the value is saved as it is.
  comm::run_ranks(1, [&](comm::Communicator& communicator) {
    const std::vector<Piece> pieces{
        {"model", "weight", at::kFloat, {1}, 0, at::full({1}, kInfinity)}};
    save_checkpoint(folder.path() / "checkpoint-8", pieces, sample_state(8), {}, communicator);
    EXPECT_TRUE(fs::exists(folder.path() / "checkpoint-8" / "manifest.json"));
  });
}

}  // namespace checkpoint_test
}  // namespace lockstep::checkpoint
