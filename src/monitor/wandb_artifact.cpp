// Describes checkpoints as W&B artifacts.
#include "monitor/wandb_artifact.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <random>
#include <span>
#include <string_view>

#include <dlfcn.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"

namespace lockstep::monitor {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMd5Bytes = 16;
using Md5 = std::array<unsigned char, kMd5Bytes>;

/// Functions of OpenSSL, on which libcurl depends as well.
struct Crypto {
  const void* (*md5)() = nullptr;
  int (*digest)(
      const void* data,
      size_t bytes,
      unsigned char* into,
      unsigned* size,
      const void* kind,
      void* engine) = nullptr;
};

Crypto open_crypto() {
  Crypto found;
  for (const char* const name : {"libcrypto.so.3", "libcrypto.so.1.1"}) {
    if (void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      found.md5 = reinterpret_cast<decltype(found.md5)>(::dlsym(handle, "EVP_md5"));
      found.digest = reinterpret_cast<decltype(found.digest)>(::dlsym(handle, "EVP_Digest"));
      break;
    }
  }
  return found;
}

Md5 md5_of(std::string_view text) {
  static const Crypto crypto = open_crypto();
  Md5 digest{};
  if (crypto.md5 == nullptr || crypto.digest == nullptr ||
      crypto.digest(text.data(), text.size(), digest.data(), nullptr, crypto.md5(), nullptr) != 1) {
    throw Error(
        ErrorKind::kEnvironment,
        "OpenSSL is not available; it is required for the MD5 checksums of W&B artifacts",
        "install it (Debian: apt-get install libssl3), or unset WANDB_LOG_MODEL");
  }
  return digest;
}

std::string base64(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < count ? bytes[at + i] : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63U] : '=';
    }
  }
  return text;
}

std::string hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

/// Replaces characters that are not allowed in artifact names.
std::string artifact_name(std::string name) {
  std::ranges::replace_if(
      name,
      [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 &&
               std::string_view("_-.").find(c) == std::string_view::npos;
      },
      '-');
  return name;
}

void keep(const fs::path& file, const fs::path& place) {
  create_folders(place.parent_path());
  std::error_code problem;
  fs::create_hard_link(file, place, problem);
  if (problem) {
    fs::copy_file(file, place, fs::copy_options::overwrite_existing, problem);
  }
  if (problem) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format(
            "cannot link or copy {} to {}: {}", file.string(), place.string(), problem.message()),
        "free disk space, or unset WANDB_LOG_MODEL");
  }
}

}  // namespace

ProtobufMessage checkpoint_artifact(const WandbArtifact& artifact) {
  std::vector<fs::path> files;  // paths relative to the checkpoint
  std::error_code problem;
  for (fs::recursive_directory_iterator at(artifact.checkpoint, problem);
       !problem && at != fs::recursive_directory_iterator();
       at.increment(problem)) {
    if (at->is_regular_file(problem)) {
      files.push_back(at->path().lexically_relative(artifact.checkpoint));
    }
  }
  std::ranges::sort(files, {}, [](const fs::path& path) { return path.generic_string(); });
  ProtobufMessage manifest, layout;
  manifest.whole(1, 1).text(2, "wandb-storage-policy-v1");
  manifest.message(3, layout.text(1, "storageLayout").text(2, "\"V2\""));
  std::string listed = "wandb-artifact-manifest-v1\n";
  for (const fs::path& file : files) {
    const fs::path place = artifact.kept / file;
    keep(artifact.checkpoint / file, place);
    const MappedFile bytes =
        fs::file_size(place) == 0 ? MappedFile() : MappedFile(place, ErrorKind::kCheckpoint);
    const std::string digest = base64(md5_of(bytes.text()));
    ProtobufMessage entry;
    entry.text(1, file.generic_string()).text(2, digest);
    entry.whole(4, static_cast<int64_t>(bytes.size())).text(6, fs::absolute(place).string());
    manifest.message(4, entry);
    listed += fmt::format("{}:{}\n", file.generic_string(), digest);
  }
  ProtobufMessage record;
  record.text(1, artifact.run_id).text(2, artifact.project).text(3, artifact.entity);
  record.text(4, "model")
      .text(5, artifact_name("model-" + artifact.name))
      .text(6, hex(md5_of(listed)));
  record.text(8, artifact.metadata_json).whole(9, 1);
  for (const std::string& alias : artifact.aliases) {
    record.text(11, alias);
  }
  constexpr int kIdLength = 128;
  record.message(12, manifest).whole(14, 1);
  return record.text(15, draw_wandb_id(kIdLength)).text(16, draw_wandb_id(kIdLength));
}

std::string draw_wandb_id(int length) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device device;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id;
  for (int i = 0; i < length; ++i) {
    id += kLetters[letter(device)];
  }
  return id;
}

}  // namespace lockstep::monitor
