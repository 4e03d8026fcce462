#include "checkpoint/manifest.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/text.h"
#include "checkpoint/together.h"

namespace lockstep::checkpoint {
namespace {

using json = nlohmann::json;

constexpr std::string_view kFormat = "lockstep-checkpoint";
constexpr std::string_view kHash = "XXH3-128";
constexpr int kVersion = 1;

uint64_t chunks_of(uint64_t size) {
  return size / kChunkBytes + (size % kChunkBytes != 0 ? 1 : 0);
}

bool is_hash(const json& text) {
  return text.is_string() && text.get_ref<const std::string&>().size() == 32;
}

}  // namespace

std::string manifest_json(const Manifest& manifest) {
  nlohmann::ordered_json root{
      {"format", kFormat},
      {"version", kVersion},
      {"sequence", manifest.sequence},
      {"hash", kHash},
      {"chunk_bytes", kChunkBytes},
      {"files", nlohmann::ordered_json::object()}};
  for (const auto& [name, record] : manifest.files) {
    root["files"][name] = {{"size", record.size}, {"chunks", record.chunks}};
  }
  return root.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, std::string_view source) {
  const json root = parse_json(text, source, ErrorKind::kCheckpoint);
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kCheckpoint, fmt::format("{} is no manifest: {}", source, what));
  };
  const auto need = [&](const json& object, const char* key) -> const json& {
    if (!object.is_object() || !object.contains(key)) {
      fail(fmt::format("it lacks \"{}\"", key));
    }
    return object.at(key);
  };
  if (need(root, "format") != kFormat) {
    fail("its format is not \"lockstep-checkpoint\"");
  }
  if (need(root, "version") != kVersion || need(root, "hash") != kHash ||
      need(root, "chunk_bytes") != kChunkBytes) {
    fail("it is of another version of this format; use the program that wrote it, or a newer one");
  }
  Manifest manifest;
  const json& sequence = need(root, "sequence");
  if (!sequence.is_number_unsigned() || sequence.get<uint64_t>() > (1ULL << 62)) {
    fail("its sequence is no number");
  }
  manifest.sequence = sequence.get<int64_t>();
  const json& files = need(root, "files");
  if (!files.is_object()) {
    fail("its files are no object");
  }
  for (const auto& [name, entry] : files.items()) {
    const json& size = need(entry, "size");
    const json& chunks = need(entry, "chunks");
    if (!plain_file_name(name)) {
      fail(fmt::format("{} is not the name of a file of the same folder", shown(name)));
    }
    if (!size.is_number_unsigned() || !chunks.is_array() ||
        chunks.size() != chunks_of(size.get<uint64_t>()) ||
        !std::all_of(chunks.begin(), chunks.end(), is_hash)) {
      fail(fmt::format("size and chunks of {} do not go together", shown(name)));
    }
    manifest.files[name] = {size.get<uint64_t>(), chunks.get<std::vector<std::string>>()};
  }
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const auto path = folder / kManifestName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format(
            "{} has no {}: it was not written by Lockstep, or never completed",
            folder.string(),
            kManifestName));
  }
  return parse_manifest(read_file(path, ErrorKind::kCheckpoint), path.string());
}

namespace {

/// " (in tensors "a", "b")": which tensors lie in bytes [begin, end) of a safetensors file that was
/// `size` long.
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
    return " (its header)";  // the damage is in the header itself
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
          "{} is cut off: {} of {} bytes{}",
          path.string(),
          size,
          record.size,
          tensors_in(path, record.size, size, record.size)));
    } else if (size > record.size) {
      problems.push_back(
          fmt::format("{} has {} bytes; {} were written", path.string(), size, record.size));
    }
  }
  return problems;
}

std::map<std::string, FileRecord> hash_files(
    const std::filesystem::path& folder,
    const std::map<std::string, uint64_t>& sizes,
    comm::Communicator& communicator) {
  // Chunk c of all files' chunks belongs to rank c % size.
  const auto ranks = static_cast<uint64_t>(communicator.size());
  const auto rank = static_cast<uint64_t>(communicator.rank());
  std::string mine;
  together(communicator, ErrorKind::kCheckpoint, [&] {
    std::vector<std::byte> buffer;
    uint64_t number = 0;
    for (const auto& [name, size] : sizes) {
      std::unique_ptr<File> file;
      for (uint64_t begin = 0; begin < size; begin += kChunkBytes, ++number) {
        if (number % ranks != rank) {
          continue;
        }
        if (file == nullptr) {
          file = std::make_unique<File>(folder / name, File::Mode::kRead);
        }
        buffer.resize(std::min(kChunkBytes, size - begin));
        file->read_at(begin, buffer);
        mine += hash_hex(std::span<const std::byte>(buffer));
      }
    }
  });
  const auto all = comm::gather_strings(communicator, mine);
  std::map<std::string, FileRecord> records;
  uint64_t number = 0;
  for (const auto& [name, size] : sizes) {
    FileRecord& record = records[name];
    record.size = size;
    for (uint64_t chunk = 0; chunk < chunks_of(size); ++chunk, ++number) {
      record.chunks.push_back(all.at(number % ranks).substr(number / ranks * 32, 32));
    }
  }
  return records;
}

Verification verify_folder(
    const std::filesystem::path& folder, Verify depth, comm::Communicator& communicator) {
  // Rank 0 reads the manifest and the sizes, so that all ranks judge by the same.
  json found{{"problems", json::array()}};
  if (communicator.rank() == 0) {
    try {
      const Manifest manifest = read_manifest(folder);
      found["manifest"] = manifest_json(manifest);
      found["problems"] = size_problems(folder, manifest);
    } catch (const std::exception& error) {  // anything: the other ranks wait for the answer
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
  std::map<std::string, uint64_t> sizes;
  for (const auto& [name, record] : result.manifest.files) {
    sizes[name] = record.size;
  }
  std::map<std::string, FileRecord> records;
  try {
    records = hash_files(folder, sizes, communicator);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kPeerLost) {
      throw;
    }
    result.problems.push_back(error.message());  // the same on every rank
    return result;
  }
  for (const auto& [name, record] : result.manifest.files) {
    for (size_t chunk = 0; chunk < record.chunks.size(); ++chunk) {
      if (records[name].chunks[chunk] != record.chunks[chunk]) {
        const uint64_t begin = chunk * kChunkBytes;
        const uint64_t end = std::min(record.size, begin + kChunkBytes);
        result.problems.push_back(fmt::format(
            "{} differs from what was written between bytes {} and {}{}",
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
