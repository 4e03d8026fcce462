// Writes checkpoints and model folders: plan, create, write, commit.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "base/byte_loops.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/copy_on_write_state.h"
#include "checkpoint/file_plan.h"
#include "checkpoint/object_store_run.h"
#include "checkpoint/on_all_ranks.h"
#include "checkpoint/page_writer.h"
#include "checkpoint/save_cache.h"
#include "checkpoint/text.h"
#include "ops/host_copies.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Size of the buffer for data that is on a device or has another type than the file.
constexpr int64_t kBufferBytes = 16 << 20;

/// Returns the exponent bits of a type. nullopt if the type has no infinities.
std::optional<Exponent> exponent_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Exponent{4, 0x7f800000};
    case at::kDouble:
      return Exponent{8, 0x7ff0000000000000};
    case at::kBFloat16:
      return Exponent{2, 0x7f80};
    case at::kHalf:
      return Exponent{2, 0x7c00};
    default:
      return std::nullopt;
  }
}

/// Steps of a save. Each method must be called on every rank.
class Save {
 public:
  Save(
      fs::path staging,
      SmallFiles files,
      comm::Communicator& communicator,
      const SaveOptions& options)
      : staging_(std::move(staging)),
        files_(std::move(files)),
        communicator_(communicator),
        disk_(options.disk != nullptr ? *options.disk : system_disk()),
        finite_(options.finite),
        lent_(options.lent),
        kept_(options.kept != nullptr ? options.kept : &own_) {}

  /// Determines the tensors and files on all ranks. Writes nothing.
  void plan(std::span<const Piece> pieces, uint64_t max_file_bytes);
  /// On rank 0, creates the folder, the files at their full size, and the small files with their
  /// content.
  void create(const std::function<void()>& prepare);
  /// Writes and syncs this rank's pieces. Rank 0 also writes the headers. Throws Error (numeric) if
  /// values must be finite and are not.
  void write(std::span<const Piece> pieces);
  /// Commits the save on rank 0. All ranks throw if this fails.
  void commit(const std::function<void()>& body);
  /// Runs the steps in `body`. If it fails, rank 0 removes the partial save before all ranks throw.
  void run(const std::function<void()>& body);

  /// Returns the records of all written files on rank 0, and an empty map on the other ranks. Must
  /// be called on every rank.
  std::map<std::string, FileRecord> records();
  const FilePlan& file_plan() const { return kept_->plan; }
  const SmallFiles& files() const { return files_; }
  const fs::path& staging() const { return staging_; }
  bool leads() const { return communicator_.rank() == 0; }

 private:
  void write_piece(const Piece& piece, PageWriter& writer, uint64_t offset);
  /// Writes `count` elements of a piece at byte `offset` of the file, in the type of the file.
  void write_run(
      PageWriter& writer,
      uint64_t offset,
      const std::byte* bytes,
      int64_t count,
      const Piece& piece);

  fs::path staging_;
  SmallFiles files_;
  comm::Communicator& communicator_;
  Disk& disk_;
  bool finite_;
  CopyOnWriteState* lent_;  // null if the state does not change during the save
  std::string not_finite_;  // first tensor of this rank with NaN or Inf
  SaveCache own_;           // used if the caller does not provide a cache
  SaveCache* kept_;
  /// For each planned file: the chunk sums of this rank's pages, and the pages that must be read
  /// back.
  struct Written {
    std::vector<PageSum> sums;
    std::vector<uint64_t> shared_pages;
  };
  std::vector<Written> written_;
};

void Save::plan(std::span<const Piece> pieces, uint64_t max_file_bytes) {
  std::string mine;
  on_all_ranks(communicator_, ErrorKind::kInternal, [&] { mine = describe_pieces(pieces); });
  const auto descriptions = comm::gather_strings(communicator_, mine);
  // From here on, every rank computes the same result or throws the same error.
  if (descriptions == kept_->descriptions && max_file_bytes == kept_->max_file_bytes) {
    return;
  }
  kept_->plan = plan_files(combine_pieces(descriptions), max_file_bytes);
  kept_->descriptions = descriptions;
  kept_->max_file_bytes = max_file_bytes;
}

void Save::create(const std::function<void()>& prepare) {
  on_all_ranks(communicator_, ErrorKind::kCheckpoint, [&] {
    if (!leads()) {
      return;
    }
    for (const auto& [name, text] : file_plan().indexes) {
      files_.insert_or_assign(name, text);
    }
    for (const auto& [name, text] : files_) {
      const bool planned =
          std::any_of(file_plan().files.begin(), file_plan().files.end(), [&](const auto& file) {
            return file.name == name;
          });
      if (!plain_file_name(name) || planned || name == kManifestName) {
        throw Error(
            ErrorKind::kInternal,
            fmt::format("a save cannot contain a small file {}", shown(name)));
      }
    }
    prepare();
    disk_.remove(staging_);
    disk_.create_folder(staging_);
    // Create all files before any byte is written, so that a full disk is reported immediately.
    for (const PlannedFile& file : file_plan().files) {
      disk_.create_file(staging_ / file.name, file.header.layout.file_size);
    }
    for (const auto& [name, text] : files_) {
      disk_.write_new(staging_ / name, text);
    }
  });
}

void Save::write(std::span<const Piece> pieces) {
  on_all_ranks(communicator_, ErrorKind::kCheckpoint, [&] {
    // Write in file order, so that only one file is open at a time and it is written from start to
    // end.
    std::vector<std::pair<FilePlan::Place, const Piece*>> order;
    for (const Piece& piece : pieces) {
      if (piece.data.defined() && piece.data.numel() > 0) {
        order.emplace_back(file_plan().places.at({piece.file_group, piece.stored_name()}), &piece);
      }
    }
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      const auto place = [](const auto& at) {
        return std::make_tuple(
            at.first.file, at.first.offset, at.second->stored_offset(), at.second->begin);
      };
      return place(a) < place(b);
    });
    if (!kept_->behind || &kept_->behind->disk() != &disk_) {
      kept_->behind.emplace(disk_);
    }
    BackgroundWriter& behind = *kept_->behind;
    behind.begin();
    auto next = order.begin();
    for (size_t number = 0; number < file_plan().files.size(); ++number) {
      const auto is_here = [&] { return next != order.end() && next->first.file == number; };
      const auto& [name, header] = file_plan().files[number];
      Written& written = written_.emplace_back();
      written.sums.resize(chunks_of(header.layout.file_size));
      if (!leads() && !is_here()) {
        continue;
      }
      PageWriter writer(disk_, staging_ / name, header.layout.file_size, written.sums, behind);
      if (leads()) {
        writer.write(0, std::as_bytes(std::span(header.bytes)));
      }
      for (; is_here(); ++next) {
        in_context(fmt::format("writing tensor {}", shown(next->second->name)), [&] {
          write_piece(*next->second, writer, next->first.offset);
        });
        if (!not_finite_.empty()) {
          return;
        }
      }
      writer.finish();
      written.shared_pages = writer.shared_pages();
    }
    // Sync rank 0's small files last. The syncs above have already flushed the journal entries that
    // created them, so this is fast.
    for (const auto& [name, text] : files_) {
      File file(staging_ / name, File::Mode::kWrite);
      disk_.sync(file);
    }
  });
  comm::agree_on_success(
      communicator_,
      not_finite_,
      ErrorKind::kNumeric,
      "nothing was saved, and the earlier checkpoints are unchanged. Resume from the last one. If "
      "it happens again, lower the learning rate; if it does not, suspect that rank's memory or "
      "processor");
}

void Save::write_piece(const Piece& piece, PageWriter& writer, uint64_t offset) {
  const at::NoGradGuard no_gradient;
  const at::Tensor flat = piece.data.detach().view({-1});
  const auto width = static_cast<int64_t>(c10::elementSize(piece.dtype));
  const int64_t step = kBufferBytes / width;
  for (int64_t begin = 0; begin < flat.numel(); begin += step) {
    const int64_t count = std::min(step, flat.numel() - begin);
    const at::Tensor part = ops::to_host(flat.narrow(0, begin, count).to(piece.dtype));
    const auto* bytes = static_cast<const std::byte*>(part.const_data_ptr());
    const int64_t first = piece.begin + begin;
    mesh::visit_runs(
        piece.cut,
        piece.shape,
        first,
        first + count,
        [&](int64_t local, int64_t whole, int64_t run) {
          write_run(
              writer,
              offset + static_cast<uint64_t>((piece.stored_offset() + whole) * width),
              bytes + (local - first) * width,
              run,
              piece);
        });
  }
}

void Save::write_run(
    PageWriter& writer,
    uint64_t offset,
    const std::byte* bytes,
    int64_t count,
    const Piece& piece) {
  const auto width = static_cast<int64_t>(c10::elementSize(piece.dtype));
  const int64_t step = static_cast<int64_t>(PageWriter::kPlaceBytes) / width;
  const std::optional<Exponent> exponent = finite_ ? exponent_of(piece.dtype) : std::nullopt;
  for (int64_t begin = 0; begin < count && not_finite_.empty(); begin += step) {
    const int64_t part = std::min(step, count - begin);
    const auto size = static_cast<size_t>(part * width);
    std::byte* const to = writer.place(offset + static_cast<uint64_t>(begin * width), size);
    const auto gather = [&](const std::byte* from) {
      if (!exponent) {
        std::memcpy(to, from, size);
      } else if (!byte_loops().copy_numbers(to, from, size, *exponent)) {
        const int64_t bad = first_not_finite(to, part, *exponent);
        const auto value = at::from_blob(to, {part}, piece.dtype)[bad];
        not_finite_ =
            fmt::format("a value of {} is {}", shown(piece.stored_name()), value.item<double>());
      }
    };
    const std::byte* const from = bytes + begin * width;
    if (lent_ != nullptr) {
      lent_->read(from, part * width, gather);
    } else {
      gather(from);
    }
    if (not_finite_.empty()) {
      writer.filled(size);
    }
  }
}

std::map<std::string, FileRecord> Save::records() {
  std::vector<PageSum> sums;
  on_all_ranks(communicator_, ErrorKind::kCheckpoint, [&] {
    for (size_t number = 0; number < file_plan().files.size(); ++number) {
      Written& written = written_[number];
      if (!written.shared_pages.empty()) {
        const File file(staging_ / file_plan().files[number].name, File::Mode::kRead);
        const uint64_t size = file_plan().files[number].header.layout.file_size;
        for (const uint64_t page : written.shared_pages) {
          std::array<std::byte, kPageBytes> buffer;
          const uint64_t at = page * kPageBytes;
          const auto bytes = std::span(buffer).first(std::min(kPageBytes, size - at));
          file.read_at(at, bytes);
          written.sums[at / kChunkBytes].add(bytes, page);
        }
      }
      sums.insert(sums.end(), written.sums.begin(), written.sums.end());
    }
  });
  communicator_
      .all_reduce(at::from_blob(sums.data(), {2 * static_cast<int64_t>(sums.size())}, at::kLong))
      .wait();
  std::map<std::string, FileRecord> records;
  if (!leads()) {
    return records;
  }
  for (const auto& [name, text] : files_) {
    records[name] = record_of(std::as_bytes(std::span(text)));
  }
  auto next = sums.begin();
  for (const PlannedFile& file : file_plan().files) {
    FileRecord& record = records[file.name];
    record.size = file.header.layout.file_size;
    for (uint64_t chunk = 0; chunk < chunks_of(record.size); ++chunk) {
      record.chunks.push_back((next++)->hex());
    }
  }
  return records;
}

void Save::commit(const std::function<void()>& body) {
  on_all_ranks(communicator_, ErrorKind::kCheckpoint, [&] {
    if (leads()) {
      body();
    }
  });
}

void Save::run(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    // Use no collective here: all ranks know about the failure, and no rank writes any more. If a
    // rank was lost, it may still be writing; the next save then cleans up.
    if (leads() && error.kind() != ErrorKind::kPeerLost) {
      std::error_code ignored;
      fs::remove_all(staging_, ignored);
    }
    throw;
  }
}

fs::path without_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

fs::path parent_of(const fs::path& folder) {
  return folder.has_parent_path() ? folder.parent_path() : fs::path(".");
}

/// Throws unless the folder does not exist, is empty, or is an older checkpoint that may be
/// replaced.
void check_replaceable(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored) || fs::exists(folder / kManifestName, ignored) ||
      fs::is_empty(folder, ignored)) {
    return;
  }
  throw Error(
      ErrorKind::kCheckpoint,
      fmt::format("{} exists and is not a Lockstep checkpoint", folder.string()),
      "move it away, or choose another output_dir");
}

int64_t next_sequence(const fs::path& output_dir) {
  int64_t highest = 0;
  for (const ListedCheckpoint& listed : list_checkpoints(output_dir)) {
    highest = std::max(highest, listed.sequence);
  }
  return highest + 1;
}

/// Syncs the folder and its parents, because a run creates its folder with the first save. Skips
/// folders that cannot be opened or synced.
void sync_way_to(const fs::path& folder, Disk& disk) {
  std::error_code ignored;
  fs::path at = fs::absolute(folder, ignored);
  while (at.has_relative_path()) {
    at = at.parent_path();
    try {
      disk.sync_folder(at);
    } catch (const Error&) {
      return;
    }
  }
}

/// Moves an existing `folder` out of the way and renames the finished folder `staging` to it.
void swap_in(const fs::path& staging, const fs::path& folder, Disk& disk) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    disk.rename(staging, folder);
    disk.sync_folder(parent_of(folder));
    return;
  }
  fs::path old = staging;
  if (!disk.exchange(staging, folder)) {
    old = folder;
    old += kReplacedSuffix;
    disk.remove(old);
    disk.rename(folder, old);
    disk.rename(staging, folder);
  }
  disk.sync_folder(parent_of(folder));
  try {
    disk.remove(old);
  } catch (const Error& error) {
    log_warning(
        "replaced checkpoint not removed: {}", error.message());  // the new checkpoint is committed
  }
}

/// Returns true for names such as model.safetensors, model-00001-of-00002.safetensors and
/// model.safetensors.index.json, and for an adapter's files, which some readers apply to a model in
/// the same folder.
bool is_model_file(std::string_view name) {
  std::string shape(name);
  std::replace_if(shape.begin(), shape.end(), [](char c) { return c >= '0' && c <= '9'; }, '0');
  return shape == "model.safetensors" || shape == "model.safetensors.index.json" ||
         shape == "model-00000-of-00000.safetensors" || shape == "adapter_model.safetensors" ||
         shape == "adapter_config.json";
}

/// Removes weight files of an earlier save from `folder`, except `files`. A reader could mistake
/// them for the new ones.
void remove_stale_weights(const fs::path& folder, const std::set<std::string>& files, Disk& disk) {
  const auto stale = [&](const std::string& name) {
    return !files.contains(name) && is_model_file(name);
  };
  std::vector<fs::path> going;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (stale(entry.path().filename().string())) {
      going.push_back(entry.path());
    }
  }
  for (const fs::path& path : going) {
    disk.remove(path);
  }
}

}  // namespace

void save_checkpoint(
    const fs::path& to,
    std::span<const Piece> pieces,
    const std::string& state,
    const SmallFiles& files,
    comm::Communicator& communicator,
    const SaveOptions& options) {
  const fs::path folder = without_slash(to);
  Disk& disk = options.disk != nullptr ? *options.disk : system_disk();
  SmallFiles all = communicator.rank() == 0 ? files : SmallFiles{};
  if (communicator.rank() == 0) {
    all[std::string(kStateName)] = state;
  }
  const OutputDirLock* hold = options.hold;
  const fs::path staging = saving_folder(folder, hold != nullptr ? hold->token() : "");
  const auto check_hold = [&] {
    if (hold != nullptr) {
      hold->check();
    }
  };
  Save save(staging, std::move(all), communicator, options);
  in_context(fmt::format("saving {}", folder.string()), [&] {
    save.run([&] {
      save.plan(pieces, options.max_file_bytes);
      save.create([&] {
        parse_json(state, kStateName, ErrorKind::kInternal);
        check_hold();
        disk.create_folder(parent_of(folder));
        clean_leftovers(parent_of(folder), disk, hold);
        check_replaceable(folder);
      });
      save.write(pieces);
      Manifest manifest;
      manifest.files = save.records();
      save.commit([&] {
        try {
          manifest.sequence = next_sequence(parent_of(folder));
          if (manifest.sequence == 1) {
            sync_way_to(parent_of(folder), disk);
          }
          disk.write_whole(staging / kManifestName, manifest_json(manifest));
          disk.sync_folder(staging);
        } catch (const Error&) {
          check_hold();  // throws if another run has taken the folder and removed the files
          throw;
        }
        check_hold();
        swap_in(staging, folder, disk);
      });
    });
    if (options.stored != nullptr) {
      options.stored->publish(folder, communicator);
    }
  });
}

void save_model(
    const fs::path& to,
    std::span<const Piece> pieces,
    const SmallFiles& files,
    comm::Communicator& communicator,
    const SaveOptions& options) {
  const fs::path folder = without_slash(to);
  Disk& disk = options.disk != nullptr ? *options.disk : system_disk();
  Save save(
      folder / kSavingSuffix,
      communicator.rank() == 0 ? files : SmallFiles{},
      communicator,
      options);
  in_context(fmt::format("saving the model to {}", folder.string()), [&] {
    save.run([&] {
      save.plan(pieces, options.max_file_bytes);
      save.create([&] { disk.create_folder(folder); });
      save.write(pieces);
      save.commit([&] {
        if (options.hold != nullptr) {
          options.hold->check();
        }
        std::set<std::string> names;
        for (const PlannedFile& file : save.file_plan().files) {
          names.insert(file.name);
        }
        for (const auto& [name, text] : save.files()) {
          if (!save.file_plan().indexes.contains(name)) {
            names.insert(name);
          }
        }
        if (!names.contains(
                "adapter_model.safetensors")) {  // an adapter may be saved in its model's folder
          // Includes the index: until the new one is there, no reader takes files of two models for
          // one.
          remove_stale_weights(folder, names, disk);
          disk.sync_folder(folder);
        }
        for (const std::string& name : names) {
          disk.rename(save.staging() / name, folder / name);
        }
        for (const auto& [name, text] : save.file_plan().indexes) {
          disk.rename(save.staging() / name, folder / name);
        }
        disk.sync_folder(folder);
        disk.remove(save.staging());
      });
    });
  });
}

}  // namespace lockstep::checkpoint
