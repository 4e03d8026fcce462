// Implements opening and reading of groups of safetensors files.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <ATen/ATen.h>

#include "base/file.h"
#include "base/format.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {
namespace {

/// Number of bytes per copy, and number of bytes that the system reads ahead during a copy. Without
/// read-ahead, each page is read from disk when the copy reaches it. Ranges smaller than
/// kLeastAhead (rows of a matrix shard) rely on the system's own read-ahead.
constexpr size_t kCopyBytes = size_t{8} << 20, kAheadBytes = 4 * kCopyBytes;
constexpr size_t kLeastAhead = size_t{256} << 10;

}  // namespace

bool TensorFiles::exist(const std::filesystem::path& folder, std::string_view group) {
  std::error_code ignored;
  return std::filesystem::exists(folder / fmt::format("{}.safetensors", group), ignored) ||
         std::filesystem::exists(folder / fmt::format("{}.safetensors.index.json", group), ignored);
}

TensorFiles::TensorFiles(std::filesystem::path folder, std::string group, ErrorKind kind)
    : folder_(std::move(folder)),
      group_(std::move(group)),
      kind_(kind) {
  const auto single = folder_ / fmt::format("{}.safetensors", group_);
  const auto index = folder_ / fmt::format("{}.safetensors.index.json", group_);
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    add_file(single);
  } else if (std::filesystem::exists(index, ignored)) {
    open_index(index);
  } else {
    throw Error(
        kind_,
        fmt::format(
            "{} has neither {} nor {}",
            folder_.string(),
            single.filename().string(),
            index.filename().string()),
        "check the path");
  }
}

void TensorFiles::open_index(const std::filesystem::path& index) {
  const std::map<std::string, std::string> map = read_shard_index(index, kind_);
  std::set<std::string> file_names;
  for (const auto& [name, file] : map) {
    file_names.insert(file);
  }
  for (const std::string& name : file_names) {
    add_file(folder_ / name);
  }
  for (const auto& [name, wanted] : map) {
    const auto found = index_.find(name);
    if (found == index_.end() || files_[found->second.file].path().filename() != wanted) {
      throw Error(
          kind_,
          fmt::format(
              "{}: tensor {} is missing from {}", index.string(), shown(name), shown(wanted)),
          "copy or download it again");
    }
  }
}

void TensorFiles::add_file(const std::filesystem::path& path) {
  files_.emplace_back(path, kind_);
  const auto& tensors = files_.back().header().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [at, added] = index_.emplace(tensors[i].name, Place{files_.size() - 1, i});
    if (!added) {
      throw Error(
          kind_,
          fmt::format(
              "tensor {} is in both {} and {}",
              shown(tensors[i].name),
              files_[at->second.file].path().string(),
              path.string()),
          "copy or download the folder again");
    }
  }
}

std::vector<std::string> TensorFiles::files() const {
  std::vector<std::string> names;
  for (const SafetensorsFile& file : files_) {
    names.push_back(file.path().filename().string());
  }
  return names;
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> names;
  names.reserve(index_.size());
  for (const auto& [name, place] : index_) {
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

const TensorFiles::Place& TensorFiles::place(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    throw Error(
        kind_,
        fmt::format("the {} files in {} have no tensor {}", group_, folder_.string(), shown(name)));
  }
  return found->second;
}

const TensorEntry& TensorFiles::tensor(const std::string& name) const {
  const Place& at = place(name);
  return files_[at.file].header().tensors[at.tensor];
}

const std::filesystem::path& TensorFiles::file_of(const std::string& name) const {
  return files_[place(name).file].path();
}

std::span<const std::byte> TensorFiles::bytes(const std::string& name) const {
  const Place& at = place(name);
  return files_[at.file].bytes(files_[at.file].header().tensors[at.tensor]);
}

void TensorFiles::read(const std::string& name, int64_t begin, const at::Tensor& out) const {
  const TensorEntry& entry = tensor(name);
  const auto fail = [&](const std::string& what) {
    throw Error(
        kind_, fmt::format("tensor {} of {} {}", shown(name), file_of(name).string(), what));
  };
  const auto type = scalar_type(entry.dtype);
  if (!type) {
    fail(fmt::format("has type {}, which cannot be read", dtype_name(entry.dtype)));
  }
  if (*type != out.scalar_type() &&
      !(at::isFloatingType(*type) && at::isFloatingType(out.scalar_type()))) {
    fail(fmt::format(
        "has type {}, not {}", dtype_name(entry.dtype), c10::toString(out.scalar_type())));
  }
  const int64_t count = out.numel();
  if (begin < 0 || begin > entry.elements() || count > entry.elements() - begin) {
    fail(fmt::format(
        "has shape {}, but elements {} to {} were requested",
        shape_text(entry.shape),
        begin,
        begin + count));
  }
  if (!out.is_contiguous()) {
    throw Error(ErrorKind::kInternal, "the destination of a tensor read is not contiguous");
  }
  const at::NoGradGuard no_gradient;
  const auto width = static_cast<size_t>(c10::elementSize(*type));
  const auto source =
      bytes(name).subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(count) * width);
  const auto part_at = [&](size_t at, size_t most) {
    at = std::min(at, source.size());
    return source.subspan(at, std::min(most, source.size() - at));
  };
  const bool reads_ahead = source.size() >= kLeastAhead;
  if (reads_ahead) {
    expect_pages(part_at(0, kAheadBytes));
  }
  const at::Tensor flat = out.detach().view({-1});
  at::Tensor aligned;  // used if the bytes in the file are not aligned
  if (reinterpret_cast<uintptr_t>(source.data()) % width != 0) {
    aligned = at::empty({std::ssize(part_at(0, kCopyBytes))}, at::dtype(at::kByte));
  }
  for (size_t at = 0; at < source.size(); at += kCopyBytes) {
    if (reads_ahead) {
      expect_pages(part_at(at + kAheadBytes, kCopyBytes));
    }
    const auto part = part_at(at, kCopyBytes);
    // The mapping is read-only, and copy_ does not write to its source.
    void* from = const_cast<std::byte*>(part.data());
    if (aligned.defined()) {
      from = std::memcpy(aligned.data_ptr(), from, part.size());
    }
    const auto first = static_cast<int64_t>(at / width);
    const auto elements = static_cast<int64_t>(part.size() / width);
    flat.narrow(0, first, elements).copy_(at::from_blob(from, {elements}, at::dtype(*type)));
    forget_pages(part);
  }
}

at::Tensor TensorFiles::read_whole(const std::string& name) const {
  const TensorEntry& entry = tensor(name);
  const auto type = scalar_type(entry.dtype);
  at::Tensor out = at::empty(entry.shape, at::dtype(type.value_or(at::kByte)));
  read(name, 0, out);
  return out;
}

}  // namespace lockstep::checkpoint
