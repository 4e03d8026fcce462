// Reads manifests and verifies folders against them.
#include "checkpoint/manifest.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "checkpoint/on_all_ranks.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {

using json = nlohmann::json;
Manifest read_manifest(const std::filesystem::path& folder) {
  const auto path = folder / kManifestName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format(
            "{} has no {}: it was not written by Lockstep, or its save never completed",
            folder.string(),
            kManifestName));
  }
  return parse_manifest(read_file(path, ErrorKind::kCheckpoint, kLongestJsonTable), path.string());
}

namespace {

/// Returns a string such as ` (in tensors "a", "b")` with the tensors in bytes [begin, end) of a
/// safetensors file of `size` bytes.
std::string tensors_in(
    const std::filesystem::path& path, uint64_t size, uint64_t begin, uint64_t end) {
  if (path.extension() != ".safetensors") {
    return "";
  }
  try {
    const MappedFile file(path, ErrorKind::kCheckpoint);
    const auto header = parse_safetensors_header(file.bytes(), size, path.string());
    std::vector<std::string> names;
    for (const TensorEntry& tensor : header.tensors) {
      if (header.data_begin + tensor.begin < end && header.data_begin + tensor.end > begin) {
        names.push_back(shown(tensor.name));
      }
    }
    if (names.empty()) {
      return "";
    }
    return fmt::format(" (tensor{} {})", names.size() > 1 ? "s" : "", list_text(names, 3));
  } catch (const Error&) {
    return " (its header)";  // the bytes are in the header
  }
}

}  // namespace

std::vector<std::string> size_problems(
    const std::filesystem::path& folder, const Manifest& manifest) {
  std::vector<std::string> problems;
  for (const auto& [name, record] : manifest.files) {
    const auto path = folder / name;
    std::error_code code;
    const uint64_t size = std::filesystem::file_size(path, code);
    if (code) {
      problems.push_back(fmt::format("{}: {}", path.string(), code.message()));
    } else if (size < record.size) {
      problems.push_back(fmt::format(
          "{} is truncated: {} of {} bytes{}",
          path.string(),
          size,
          record.size,
          tensors_in(path, record.size, size, record.size)));
    } else if (size > record.size) {
      problems.push_back(
          fmt::format("{} has {} bytes; {} bytes were written", path.string(), size, record.size));
    }
  }
  return problems;
}

namespace {

/// Hashes the chunks of a manifest's files in `folder`. The chunks are divided among the ranks, and
/// every rank receives all hashes. Throws on every rank if any rank cannot read its chunks. Must be
/// called on every rank with the same manifest.
std::map<std::string, std::vector<std::string>> hash_files(
    const std::filesystem::path& folder,
    const Manifest& manifest,
    comm::Communicator& communicator) {
  // Chunk c, numbered over all files, is hashed by rank c % size.
  const auto ranks = static_cast<uint64_t>(communicator.size());
  const auto rank = static_cast<uint64_t>(communicator.rank());
  std::string mine;
  on_all_ranks(communicator, ErrorKind::kCheckpoint, [&] {
    std::vector<std::byte> buffer;
    uint64_t number = 0;
    for (const auto& [name, record] : manifest.files) {
      std::unique_ptr<File> file;
      for (uint64_t begin = 0; begin < record.size; begin += kChunkBytes, ++number) {
        if (number % ranks != rank) {
          continue;
        }
        if (file == nullptr) {
          file = std::make_unique<File>(folder / name, File::Mode::kRead);
        }
        buffer.resize(std::min(kChunkBytes, record.size - begin));
        file->read_at(begin, buffer);
        mine += chunk_hash(manifest.hash, buffer, begin);
      }
    }
  });
  const auto all = comm::gather_strings(communicator, mine);
  std::map<std::string, std::vector<std::string>> hashes;
  uint64_t number = 0;
  for (const auto& [name, record] : manifest.files) {
    for (uint64_t chunk = 0; chunk < chunks_of(record.size); ++chunk, ++number) {
      hashes[name].push_back(all.at(number % ranks).substr(number / ranks * 32, 32));
    }
  }
  return hashes;
}

}  // namespace

Verification verify_folder(
    const std::filesystem::path& folder, Verify depth, comm::Communicator& communicator) {
  // Only rank 0 reads the manifest and the file sizes, so that all ranks decide by the same data.
  json found{{"problems", json::array()}};
  if (communicator.rank() == 0) {
    try {
      const Manifest manifest = read_manifest(folder);
      found["manifest"] = manifest_json(manifest);
      found["problems"] = size_problems(folder, manifest);
    } catch (const std::exception& error) {  // any exception, because the other ranks are waiting
      found["problems"] = {error.what()};
    }
  }
  found = json::parse(comm::broadcast_string(
      communicator, found.dump(-1, ' ', false, json::error_handler_t::replace)));
  Verification result;
  result.problems = found["problems"].get<std::vector<std::string>>();
  if (found.contains("manifest")) {
    result.manifest = parse_manifest(found["manifest"].get<std::string>(), folder.string());
  }
  if (!result.problems.empty() || depth == Verify::kSizes) {
    return result;
  }
  std::map<std::string, std::vector<std::string>> hashes;
  try {
    hashes = hash_files(folder, result.manifest, communicator);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kPeerLost) {
      throw;
    }
    result.problems.push_back(error.message());  // the same error on every rank
    return result;
  }
  for (const auto& [name, record] : result.manifest.files) {
    for (size_t chunk = 0; chunk < record.chunks.size(); ++chunk) {
      if (hashes[name][chunk] != record.chunks[chunk]) {
        const uint64_t begin = chunk * kChunkBytes;
        const uint64_t end = std::min(record.size, begin + kChunkBytes);
        result.problems.push_back(fmt::format(
            "{} differs from the saved data between bytes {} and {}{}",
            (folder / name).string(),
            begin,
            end,
            tensors_in(folder / name, record.size, begin, end)));
      }
    }
  }
  return result;
}

}  // namespace lockstep::checkpoint
