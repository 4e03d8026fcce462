// Implements verifying, opening and reading of checkpoints.
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/on_all_ranks.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRemedy =
    "use an older checkpoint: resume_from_checkpoint=FOLDER, or =true for the newest complete one";

Error damaged(const fs::path& folder, std::span<const std::string> problems) {
  return Error(
      ErrorKind::kCheckpoint,
      fmt::format("checkpoint {} is damaged: {}", folder.string(), list_text(problems, 4)),
      std::string(kRemedy));
}

}  // namespace

Checkpoint Checkpoint::open(
    const fs::path& folder, comm::Communicator& communicator, Verify depth) {
  Verification verification = verify_folder(folder, depth, communicator);
  if (!verification.problems.empty()) {
    throw damaged(folder, verification.problems);
  }
  return open_verified(folder, std::move(verification.manifest), communicator);
}

Checkpoint Checkpoint::open_verified(
    const fs::path& folder, Manifest manifest, comm::Communicator& communicator) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = std::move(manifest);
  on_all_ranks(communicator, ErrorKind::kCheckpoint, [&] {
    checkpoint.state_ = checkpoint.file(std::string(kStateName));
    std::set<std::string> groups;
    for (const auto& [name, record] : checkpoint.manifest_.files) {
      for (const std::string_view suffix : {".safetensors.index.json", ".safetensors"}) {
        if (name.ends_with(suffix)) {
          const std::string stem = name.substr(0, name.size() - suffix.size());
          if (suffix == ".safetensors.index.json" || stem == "model" || stem == "adapter_model") {
            groups.insert(stem);
          }
          break;
        }
      }
    }
    for (const std::string& group : groups) {
      TensorFiles files(folder, group, ErrorKind::kCheckpoint);
      for (const std::string& name : files.files()) {
        if (!checkpoint.has_file(name)) {
          throw Error(
              ErrorKind::kCheckpoint,
              fmt::format(
                  "{} was added to the checkpoint after it was saved", (folder / name).string()),
              "move the file away");
        }
      }
      checkpoint.groups_.emplace(group, std::move(files));
    }
  });
  return checkpoint;
}

std::string Checkpoint::file(const std::string& name) const {
  if (!has_file(name)) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format("checkpoint {} has no {}", folder_.string(), shown(name)));
  }
  return read_file(folder_ / name, ErrorKind::kCheckpoint, kLongestJsonTable);
}

const TensorFiles& Checkpoint::group(const std::string& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format("checkpoint {} has no {} tensors", folder_.string(), group));
  }
  return found->second;
}

void Checkpoint::check(std::span<const ExpectedTensor> expected, Extra extra) const {
  std::vector<std::string> problems;
  std::map<std::string, std::set<std::string>> known;
  for (const ExpectedTensor& tensor : expected) {
    known[tensor.file_group].insert(tensor.name);
    const auto found = groups_.find(tensor.file_group);
    if (found == groups_.end() || !found->second.contains(tensor.name)) {
      problems.push_back(fmt::format(
          "the {} files of {} have no tensor {} {}",
          tensor.file_group,
          folder_.string(),
          shown(tensor.name),
          shape_text(tensor.shape)));
      continue;
    }
    const TensorEntry& entry = found->second.tensor(tensor.name);
    const bool type_fits = tensor.dtype ? entry.dtype == file_dtype(*tensor.dtype) : true;
    if (entry.shape != tensor.shape || !type_fits) {
      problems.push_back(fmt::format(
          "tensor {} in {} is {} {}; expected {}{}",
          shown(tensor.name),
          found->second.file_of(tensor.name).string(),
          dtype_name(entry.dtype),
          shape_text(entry.shape),
          tensor.dtype ? fmt::format("{} ", dtype_name(file_dtype(*tensor.dtype))) : "",
          shape_text(tensor.shape)));
    }
  }
  for (const auto& [group, names] : known) {
    if (extra == Extra::kAllow || !groups_.contains(group)) {
      continue;
    }
    for (const std::string& name : groups_.at(group).names()) {
      if (!names.contains(name)) {
        problems.push_back(fmt::format(
            "{} has the tensor {}, which this model does not have",
            groups_.at(group).file_of(name).string(),
            shown(name)));
      }
    }
  }
  if (!problems.empty()) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format("the checkpoint does not match the model: {}", list_text(problems)),
        "resume with the model and optimizer with which it was saved");
  }
}

void Checkpoint::read(
    const std::string& group, const std::string& name, int64_t begin, const at::Tensor& out) const {
  this->group(group).read(name, begin, out);
}

void Checkpoint::read(const Piece& piece) const {
  if (!piece.data.defined()) {
    return;
  }
  const at::Tensor flat = piece.data.view({-1});
  const TensorFiles& files = group(piece.file_group);
  mesh::visit_runs(
      piece.cut,
      piece.shape,
      piece.begin,
      piece.begin + flat.numel(),
      [&](int64_t local, int64_t whole, int64_t count) {
        files.read(
            piece.stored_name(),
            piece.stored_offset() + whole,
            flat.narrow(0, local - piece.begin, count));
      });
}

void Checkpoint::read(std::span<const Piece> pieces) const {
  for (const Piece& piece : pieces) {
    check(
        std::vector<ExpectedTensor>{{piece.file_group, piece.stored_name(), piece.stored_shape()}},
        Extra::kAllow);
    read(piece);
  }
}

std::optional<Checkpoint> latest_checkpoint(
    const fs::path& output_dir, comm::Communicator& communicator) {
  nlohmann::json names = nlohmann::json::array();
  on_all_ranks(communicator, ErrorKind::kCheckpoint, [&] {
    if (communicator.rank() == 0) {
      for (const ListedCheckpoint& listed : list_checkpoints(output_dir)) {
        names.push_back(listed.folder.filename().string());
      }
    }
  });
  names = nlohmann::json::parse(comm::broadcast_string(communicator, names.dump()));
  if (names.empty()) {
    return std::nullopt;
  }
  std::vector<std::string> problems;
  for (const auto& name : names) {
    const fs::path folder = output_dir / name.get<std::string>();
    Verification verification = verify_folder(folder, Verify::kHashes, communicator);
    if (verification.problems.empty()) {
      return Checkpoint::open_verified(folder, std::move(verification.manifest), communicator);
    }
    if (communicator.rank() == 0) {
      log_warning(
          "skipped checkpoint {}: {}", folder.string(), list_text(verification.problems, 4));
    }
    problems.push_back(verification.problems.front());
  }
  throw Error(
      ErrorKind::kCheckpoint,
      fmt::format(
          "{} has {} checkpoint{}, but none is complete: {}",
          output_dir.string(),
          names.size(),
          names.size() > 1 ? "s" : "",
          list_text(problems, 4)),
      "train from the start without resume_from_checkpoint, or copy a complete checkpoint there");
}

}  // namespace lockstep::checkpoint
