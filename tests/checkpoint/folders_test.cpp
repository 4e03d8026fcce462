// Listing, verification, rotation and cleanup of checkpoint folders.
#include "checkpoint/folders.h"

#include <future>

#include <gtest/gtest.h>

#include "checkpoint/async_saver.h"
#include "checkpoint/checkpoint.h"
#include "comm/threads.h"
#include "expect_error.h"
#include "mutator.h"
#include "saving.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace folders_test {

namespace fs = std::filesystem;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename());
  }
  return names;
}

void flip_byte(const fs::path& path, int64_t at) {
  std::string text = read_file(path);
  text.at(at < 0 ? text.size() + static_cast<size_t>(at) : static_cast<size_t>(at)) ^= 1;
  File(path, File::Mode::kWrite).write_at(0, std::as_bytes(std::span(text)));
}

class Folders : public testing::Test {
 protected:
  void save(int64_t step) { save_sample(output(), step, alone_); }
  int64_t latest_step() {
    const auto latest = latest_checkpoint(output(), alone_);
    return latest ? *checkpoint_step(latest->folder()) : -1;
  }
  std::string latest_warnings() {
    testing::internal::CaptureStderr();
    latest_step();
    return testing::internal::GetCapturedStderr();
  }
  const fs::path& output() const { return folder_.path(); }
  fs::path file(int64_t step, const char* name) const {
    return checkpoint_folder(output(), step) / name;
  }

  const TemporaryFolder folder_;
  comm::Communicator alone_ = comm::Communicator::alone();
};

TEST_F(Folders, NamesSteps) {
  EXPECT_EQ(checkpoint_step("out/checkpoint-12"), 12);
  EXPECT_EQ(checkpoint_step("out/checkpoint-12/"), 12);
  for (const char* name :
       {"checkpoint-",
        "checkpoint-1x",
        "checkpoint--1",
        "checkpoint-12.saving",
        "Checkpoint-1",
        "checkpoint-99999999999999999999",
        "x"}) {
    EXPECT_EQ(checkpoint_step(name), std::nullopt) << name;
  }
}

TEST_F(Folders, ThereMayBeNone) {
  EXPECT_EQ(latest_step(), -1);
  EXPECT_FALSE(latest_checkpoint(output() / "missing", alone_));
  fs::create_directories(output() / "checkpoint-x");
  write_file_atomically(output() / "checkpoint-5", "a file");
  EXPECT_EQ(latest_step(), -1);
}

TEST_F(Folders, TheNewestIsTheLastCommittedNotTheHighestStep) {
  save(10);
  save(30);
  EXPECT_EQ(latest_step(), 30);
  save(20);  // the run resumed from step 10
  EXPECT_EQ(latest_step(), 20);
  save(100);
  EXPECT_EQ(latest_step(), 100);
}

TEST_F(Folders, FallsBackFromDamageAndSaysWhatIsDamaged) {
  save(1);
  save(2);
  const auto original = read_file(file(2, "model.safetensors"));
  flip_byte(file(2, "model.safetensors"), -1);
  EXPECT_EQ(latest_step(), 1);
  const std::string warning = latest_warnings();
  for (const char* text :
       {"skipped checkpoint",
        "checkpoint-2",
        "model.safetensors differs from the saved data",
        "(tensors \""}) {
    EXPECT_NE(warning.find(text), std::string::npos) << warning;
  }
  expect_error(ErrorKind::kCheckpoint, {"checkpoint-2 is damaged", "use an older"}, [&] {
    Checkpoint::open(output() / "checkpoint-2", alone_);
  });
  EXPECT_NO_THROW(Checkpoint::open(output() / "checkpoint-2", alone_, Verify::kSizes));
  write_file_atomically(file(2, "model.safetensors"), original);
  EXPECT_EQ(latest_step(), 2);
  fs::remove(file(2, "manifest.json"));
  EXPECT_NE(latest_warnings().find("checkpoint-2 has no manifest.json"), std::string::npos);
  EXPECT_EQ(latest_step(), 1);
  fs::remove(file(1, "state.json"));
  expect_error(
      ErrorKind::kCheckpoint,
      {"has 2 checkpoints, but none is complete", "state.json: No such file"},
      [&] { latest_step(); });
}

TEST_F(Folders, AnyTruncatedOrAlteredFileIsSeen) {
  save(1);
  save(2);
  const fs::path folder = checkpoint_folder(output(), 2);
  int64_t harmless = 0;
  for (const std::string& name : names_in(folder)) {
    const std::string text = read_file(folder / name);
    const size_t stride = std::max<size_t>(1, text.size() / 40);
    for (size_t at = 0; at < text.size(); at += stride) {
      fs::resize_file(folder / name, at);
      EXPECT_EQ(latest_step(), 1) << name << " cut at " << at;
      write_file_atomically(folder / name, text);
      flip_byte(folder / name, static_cast<int64_t>(at));
      if (latest_step() == 2) {
        ++harmless;  // manifest.json: white space, or the sequence number
        EXPECT_EQ(name, "manifest.json");
        expect_sample(*latest_checkpoint(output(), alone_), 2, 0, 1);
      }
      write_file_atomically(folder / name, text);
    }
    write_file_atomically(folder / name, text + "x");
    if (name != "manifest.json") {
      EXPECT_EQ(latest_step(), 1) << name << " with a byte more";
    }
    write_file_atomically(folder / name, text);
    fs::remove(folder / name);
    EXPECT_EQ(latest_step(), 1) << name << " missing";
    write_file_atomically(folder / name, text);
    EXPECT_EQ(latest_step(), 2);
  }
  EXPECT_LT(harmless, 20);
}

TEST_F(Folders, NamesTheTensorsThatAreCutOff) {
  save(1);
  const SafetensorsHeader header = SafetensorsFile(file(1, "model.safetensors")).header();
  const TensorEntry& last = header.tensors.back();
  fs::resize_file(file(1, "model.safetensors"), header.data_begin + last.end - 1);
  expect_error(
      ErrorKind::kCheckpoint,
      {"model.safetensors is truncated", fmt::format("(tensor \"{}\")", last.name)},
      [&] { Checkpoint::open(output() / "checkpoint-1", alone_); });
}

TEST_F(Folders, ChunksAreDealtOverRanksAndNameTheirTensors) {
  // 45 MB in three chunks: "a" ends in the second chunk, where "b" begins.
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    const std::vector<Piece> whole{
        {"model", "a", at::kFloat, {5000000}, 0, at::arange(5000000, at::kFloat)},
        {"model", "b", at::kFloat, {2500, 2500}, 0, at::ones({6250000})}};
    save_checkpoint(
        checkpoint_folder(output(), 1),
        share_of(whole, communicator.rank(), 2),
        "{}",
        {},
        communicator);
  });
  EXPECT_EQ(
      read_manifest(checkpoint_folder(output(), 1)).files.at("model.safetensors").chunks.size(),
      3U);
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, [&](comm::Communicator& communicator) {
      EXPECT_EQ(latest_checkpoint(output(), communicator)->group("model").names().size(), 2U);
    });
  }
  flip_byte(file(1, "model.safetensors"), -1);
  expect_error(
      ErrorKind::kCheckpoint,
      {"differs from the saved data between bytes 33554432 and 45", "(tensor \"b\")"},
      [&] { Checkpoint::open(output() / "checkpoint-1", alone_); });
}

TEST_F(Folders, ManifestsOfHashesOfWholeChunksAreReadAndCompared) {
  save(1);
  Manifest manifest = read_manifest(output() / "checkpoint-1");
  manifest.hash = ChunkHash::kAtOnce;
  for (auto& [name, record] : manifest.files) {
    if (record.size > 0) {
      const std::string text = read_file(file(1, name.c_str()));
      record.chunks = {chunk_hash(ChunkHash::kAtOnce, std::as_bytes(std::span(text)), 0)};
    }
  }
  write_file_atomically(file(1, "manifest.json"), manifest_json(manifest));
  expect_sample(Checkpoint::open(output() / "checkpoint-1", alone_), 1, 0, 1);
  flip_byte(file(1, "model.safetensors"), -1);
  expect_error(ErrorKind::kCheckpoint, {"model.safetensors differs from the saved data"}, [&] {
    Checkpoint::open(output() / "checkpoint-1", alone_);
  });
}

TEST_F(Folders, AFileThatWasPutThereLaterIsNotTaken) {
  SaveOptions options;
  options.max_file_bytes = 100;
  save_sample(output(), 1, alone_, options);
  fs::copy_file(file(1, "model-00001-of-00003.safetensors"), file(1, "model.safetensors"));
  expect_error(
      ErrorKind::kCheckpoint,
      {"model.safetensors was added to the checkpoint after it was saved"},
      [&] { Checkpoint::open(output() / "checkpoint-1", alone_); });
}

TEST_F(Folders, DamageIsSeenByEveryRank) {
  save(1);
  save(2);
  flip_byte(file(2, "optimizer-00001-of-00001.safetensors"), -9);
  comm::run_ranks(3, [&](comm::Communicator& communicator) {
    expect_sample(*latest_checkpoint(output(), communicator), 1, communicator.rank(), 3);
    expect_error(ErrorKind::kCheckpoint, {"optimizer-00001-of-00001.safetensors differs"}, [&] {
      Checkpoint::open(output() / "checkpoint-2", communicator);
    });
  });
}

TEST_F(Folders, HostileManifestsAreErrors) {
  save(1);
  const std::string good = read_file(file(1, "manifest.json"));
  EXPECT_EQ(manifest_json(parse_manifest(good, "m")), good);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  const auto reject = [&](const std::string& text, const std::string& message) {
    expect_error(ErrorKind::kCheckpoint, {message}, [&] { parse_manifest(text, "m"); });
  };
  reject("", "not JSON");
  reject("[]", "has no \"format\"");
  reject(with("\"config.json\"", "\"../config.json\""), "\"../config.json\" is not the name");
  reject(with("\"version\": 1", "\"version\": 2"), "format version is not supported");
  reject(with("16777216", "1"), "format version is not supported");
  reject(with("lockstep-checkpoint", "x"), "its format");
  reject(with("\"size\": 22", "\"size\": 18446744073709551615"), "do not match");
  reject(with("\"size\": 22", "\"size\": -22"), "do not match");
  reject(with("\"sequence\": 1", "\"sequence\": \"1\""), "sequence");
}

TEST_F(Folders, MutatedManifestsAreErrorsOrSafe) {
  save(1);
  const std::string good = read_file(file(1, "manifest.json"));
  Mutator mutator(3);
  for (int64_t i = fuzz_rounds(20000); i > 0; --i) {
    Manifest manifest;
    try {
      manifest = parse_manifest(mutator.mutate(good), "m");
    } catch (const Error&) {
      continue;
    }
    EXPECT_EQ(manifest_json(parse_manifest(manifest_json(manifest), "m")), manifest_json(manifest));
    for (const auto& [name, record] : manifest.files) {
      EXPECT_EQ(name.find('/'), std::string::npos);
      EXPECT_EQ(record.chunks.size(), record.size / kChunkBytes + (record.size % kChunkBytes != 0));
    }
  }
}

TEST_F(Folders, RotationKeepsTheNewestAndTheBest) {
  for (const int64_t step : {1, 2, 3, 4, 5}) {
    save(step);
  }
  fs::create_directories(output() / "checkpoint-9");  // written by another program
  const std::vector<fs::path> best{output() / "checkpoint-2"};
  rotate_checkpoints(output(), 3, best);  // the best one counts
  EXPECT_EQ(
      names_in(output()),
      (std::set<std::string>{"checkpoint-2", "checkpoint-4", "checkpoint-5", "checkpoint-9"}));
  rotate_checkpoints(output(), 1, best);  // the newest one is never removed
  EXPECT_EQ(
      names_in(output()), (std::set<std::string>{"checkpoint-2", "checkpoint-5", "checkpoint-9"}));
  rotate_checkpoints(output(), 1);
  EXPECT_EQ(names_in(output()), (std::set<std::string>{"checkpoint-5", "checkpoint-9"}));
}

TEST_F(Folders, RotationNeverRemovesTheLastGoodOne) {
  for (const int64_t step : {1, 2, 3, 4}) {
    save(step);
  }
  fs::resize_file(file(4, "model.safetensors"), 20);
  fs::resize_file(file(2, "state.json"), 0);
  rotate_checkpoints(output(), 1);
  // 4 is truncated and does not count; 3 is the newest complete one.
  EXPECT_EQ(names_in(output()), (std::set<std::string>{"checkpoint-3", "checkpoint-4"}));
  EXPECT_EQ(latest_step(), 3);
}

TEST_F(Folders, LeftoversGoAtTheNextSave) {
  save(1);
  fs::create_directories(output() / "checkpoint-2.saving" / "x");
  fs::create_directories(output() / "checkpoint-3.removing");
  fs::rename(output() / "checkpoint-1", output() / "checkpoint-1.replaced");
  EXPECT_EQ(latest_checkpoint(output(), alone_)->folder().filename(), "checkpoint-1.replaced");
  save(4);
  EXPECT_EQ(names_in(output()), (std::set<std::string>{"checkpoint-1", "checkpoint-4"}));
}

TEST_F(Folders, ASharedFolderIsToldFromOneThatIsNot) {
  comm::run_ranks(3, [&](comm::Communicator& communicator) {
    check_shared_folder(output() / "new", communicator);
    EXPECT_TRUE(fs::is_empty(output() / "new") || communicator.rank() != 0);
    expect_error(
        ErrorKind::kConfig,
        {"is not shared by all nodes", "rank 1 on ", "rank 2 on", "output_dir"},
        [&] {
          check_shared_folder(output() / (communicator.rank() == 0 ? "a" : "b"), communicator);
        });
  });
  write_file_atomically(output() / "file", "");
  expect_error(
      ErrorKind::kConfig, {"file"}, [&] { check_shared_folder(output() / "file", alone_); });
}

TEST_F(Folders, SavingInTheBackgroundSavesWhatWasThere) {
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    AsyncSaver saver(communicator);
    auto pieces = share_of(sample_tensors(1), communicator.rank(), 2);
    for (Piece& piece : pieces) {
      piece.data = piece.data.clone();
    }
    for (const int64_t step : {1, 2, 3}) {
      const auto now = share_of(sample_tensors(step), communicator.rank(), 2);
      for (size_t i = 0; i < pieces.size(); ++i) {
        pieces[i].data.copy_(now[i].data);
      }
      saver.save(
          checkpoint_folder(output(), step), pieces, sample_state(step), sample_files(), {}, [&] {
            if (communicator.rank() == 0) {
              rotate_checkpoints(output(), 2);
            }
          });
      saver.before_state_update();
      for (Piece& piece : pieces) {
        piece.data.fill_(-1);  // training continues
      }
    }
    saver.wait();
    EXPECT_GT(saver.seconds_held(), 0);
    for (const int64_t step : {2, 3}) {
      expect_sample(
          Checkpoint::open(checkpoint_folder(output(), step), communicator),
          step,
          communicator.rank(),
          2);
    }
  });
  EXPECT_EQ(names_in(output()), (std::set<std::string>{"checkpoint-2", "checkpoint-3"}));
}

TEST_F(Folders, ASaveInTheBackgroundIsCommittedAfterItsEnd) {
  AsyncSaver saver(alone_);
  std::promise<void> gate;
  std::promise<void> reached;
  EXPECT_FALSE(saver.committed());
  saver.save(checkpoint_folder(output(), 1), {}, sample_state(1), sample_files(), {}, [&] {
    reached.set_value();
    gate.get_future().wait();
  });
  reached.get_future().wait();
  EXPECT_FALSE(saver.committed());
  gate.set_value();
  saver.wait();
  EXPECT_TRUE(saver.committed());
  FaultyDisk disk(FaultyDisk::Fault::kNoSpace, 0);
  SaveOptions options;
  options.disk = &disk;
  saver.save(checkpoint_folder(output(), 2), {}, sample_state(2), sample_files(), options);
  EXPECT_THROW(saver.wait(), Error);
  EXPECT_FALSE(saver.committed());
}

TEST_F(Folders, AFailureInTheBackgroundIsThrownAtTheNextWait) {
  FaultyDisk disk(FaultyDisk::Fault::kNoSpace, 0);
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    AsyncSaver saver(communicator);
    SaveOptions options;
    options.disk = &disk;
    const auto pieces = share_of(sample_tensors(1), communicator.rank(), 2);
    const auto save = [&] {
      saver.save(checkpoint_folder(output(), 1), pieces, sample_state(1), sample_files(), options);
    };
    save();
    expect_error(ErrorKind::kCheckpoint, {"rank 0: ", "No space left on device"}, save);
    save();
    EXPECT_NO_THROW(saver.wait());
  });
  EXPECT_EQ(latest_step(), 1);
}

}  // namespace folders_test
}  // namespace lockstep::checkpoint
