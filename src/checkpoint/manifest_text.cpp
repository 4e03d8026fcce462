// Parses and writes manifest.json.
#include "checkpoint/manifest_text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/page_sum.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {
namespace {

using json = nlohmann::json;

constexpr std::string_view kFormat = "lockstep-checkpoint";
constexpr std::string_view kAtOnce = "XXH3-128";
constexpr std::string_view kPages = "sum of XXH3-128 of 4096";
constexpr int kVersion = 1;

bool is_hash(const json& text) {
  return text.is_string() && text.get_ref<const std::string&>().size() == 32;
}

}  // namespace

std::string chunk_hash(ChunkHash hash, std::span<const std::byte> chunk, uint64_t offset) {
  if (hash == ChunkHash::kAtOnce) {
    return hash_hex(chunk);
  }
  PageSum sum;
  sum.add(chunk, offset / kPageBytes);
  return sum.hex();
}

FileRecord record_of(std::span<const std::byte> bytes) {
  FileRecord record{bytes.size(), {}};
  for (uint64_t at = 0; at < bytes.size(); at += kChunkBytes) {
    const uint64_t count = std::min(kChunkBytes, bytes.size() - at);
    record.chunks.push_back(chunk_hash(ChunkHash::kPages, bytes.subspan(at, count), at));
  }
  return record;
}

std::string manifest_json(const Manifest& manifest) {
  nlohmann::ordered_json root{
      {"format", kFormat},
      {"version", kVersion},
      {"sequence", manifest.sequence},
      {"hash", manifest.hash == ChunkHash::kPages ? kPages : kAtOnce},
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
    throw Error(ErrorKind::kCheckpoint, fmt::format("{} is not a manifest: {}", source, what));
  };
  const auto need = [&](const json& object, const char* key) -> const json& {
    if (!object.is_object() || !object.contains(key)) {
      fail(fmt::format("it has no \"{}\"", key));
    }
    return object.at(key);
  };
  if (need(root, "format") != kFormat) {
    fail("its format is not \"lockstep-checkpoint\"");
  }
  const json& hash = need(root, "hash");
  if (need(root, "version") != kVersion || (hash != kPages && hash != kAtOnce) ||
      need(root, "chunk_bytes") != kChunkBytes) {
    fail("its format version is not supported; use the program that wrote it, or a newer one");
  }
  Manifest manifest;
  manifest.hash = hash == kPages ? ChunkHash::kPages : ChunkHash::kAtOnce;
  const json& sequence = need(root, "sequence");
  if (!sequence.is_number_unsigned() || sequence.get<uint64_t>() > (1ULL << 62)) {
    fail("its sequence is not a number");
  }
  manifest.sequence = sequence.get<int64_t>();
  const json& files = need(root, "files");
  if (!files.is_object()) {
    fail("its files are not an object");
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
      fail(fmt::format("size and chunks of {} do not match", shown(name)));
    }
    manifest.files[name] = {size.get<uint64_t>(), chunks.get<std::vector<std::string>>()};
  }
  return manifest;
}

}  // namespace lockstep::checkpoint
