// Implements access to object stores with retries and readable errors.
#include "objects/store.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include <dlfcn.h>

#include "base/format.h"
#include "base/redact.h"

namespace lockstep::objects {
namespace {

// If a response is cut off within its header, Arrow's client treats it as a successful empty
// response, and a read leaves the buffer unchanged. Therefore empty results are requested again,
// and a read must overwrite a random mark.
constexpr int kLooks = 3, kReads = 6, kWrites = 3;

constexpr size_t kLongestMessage = 400;
constexpr uint64_t kBlockBytes = uint64_t{8} << 20;

constexpr const char* kObjectStoreLibrary = "liblockstep_object_stores.so";
constexpr std::array<std::string_view, 3> kSchemes = {"s3", "gs", "az"};

OpenBucket bucket_library(const Location& location) {
  static const std::pair<OpenBucket, std::string> loaded =
      []() -> std::pair<OpenBucket, std::string> {
    void* library = ::dlopen(kObjectStoreLibrary, RTLD_NOW | RTLD_LOCAL);
    void* entry = library == nullptr ? nullptr : ::dlsym(library, "lockstep_open_bucket");
    if (entry == nullptr) {
      return {nullptr, ::dlerror()};
    }
    return {reinterpret_cast<OpenBucket>(entry), ""};
  }();
  if (loaded.first == nullptr) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "{} requires {}, which cannot be loaded: {}",
            location.text(),
            kObjectStoreLibrary,
            loaded.second),
        "build it with `make build`, which uses Arrow's library from pyarrow; or copy the objects "
        "to a disk");
  }
  return loaded.first;
}

bool tells(std::string_view problem, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return problem.find(word) != problem.npos;
  });
}

std::string credentials_of(std::string_view scheme) {
  return scheme == "s3"   ? "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
         : scheme == "gs" ? "GOOGLE_APPLICATION_CREDENTIALS"
                          : "AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_TENANT_ID, "
                            "AZURE_CLIENT_ID and "
                            "AZURE_CLIENT_SECRET";
}

/// Returns the library's message as one short line. Its URLs contain the credentials of some
/// stores, which are removed before the text is cut, because a part of a secret is no longer
/// recognized.
std::string line_of(const std::string& problem) {
  std::string line = redacted(problem);
  std::ranges::replace(line, '\n', ' ');
  return line.substr(0, kLongestMessage);
}

/// Throws an Error with a hint unless `problem` is empty.
void check(const std::string& problem, std::string_view action, const Location& place) {
  if (problem.empty()) {
    return;
  }
  const std::string what = fmt::format("cannot {} {}: {}", action, place.text(), line_of(problem));
  if (tells(
          problem,
          {"NO_SUCH_BUCKET", "Bucket does not exist", "Bucket not found", "ContainerNotFound"})) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot {} {}: bucket {} does not exist", action, place.text(), place.bucket),
        place.scheme == "az"
            ? "check its name and account (AZURE_STORAGE_ACCOUNT); containers are never created"
            : "check its name and region (AWS_REGION); buckets are never created");
  }
  if (tells(
          problem,
          {"ACCESS_DENIED",
           "HTTP 403",
           "403 ",
           "INVALID_ACCESS_KEY",
           "SIGNATURE",
           "InvalidAccess"})) {
    throw Error(
        ErrorKind::kEnvironment,
        what,
        fmt::format(
            "access was denied: check the credentials ({}) and their permissions for {}",
            credentials_of(place.scheme),
            place.bucket));
  }
  if (tells(problem, {"SSL", "certificate"})) {
    throw Error(
        ErrorKind::kEnvironment,
        what,
        "install ca-certificates, or set SSL_CERT_FILE to a file of trusted certificates");
  }
  throw Error(
      ErrorKind::kEnvironment,
      what,
      fmt::format(
          "check that this machine can reach the store{}, and run the command again: objects that "
          "are complete are not transferred again",
          place.scheme == "s3"   ? " (AWS_ENDPOINT_URL, AWS_REGION)"
          : place.scheme == "az" ? " (AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_SERVICE_ENDPOINT)"
                                 : ""));
}

}  // namespace

bool is_remote(std::string_view word) {
  return std::any_of(kSchemes.begin(), kSchemes.end(), [&](std::string_view scheme) {
    return word.starts_with(scheme) && word.substr(scheme.size()).starts_with("://");
  });
}

std::string Location::text() const {
  return fmt::format("{}://{}{}{}", scheme, bucket, key.empty() ? "" : "/", key);
}

Location Location::below(std::string_view name) const {
  return {scheme, bucket, key.empty() ? std::string(name) : fmt::format("{}/{}", key, name)};
}

Location parse_location(std::string_view text) {
  const size_t colon = text.find("://");
  Location location{std::string(text.substr(0, colon)), "", ""};
  const std::string_view rest = text.substr(colon + 3);
  const size_t slash = std::min(rest.find('/'), rest.size());
  location.bucket = rest.substr(0, slash);
  std::string_view key = rest.substr(std::min(slash + 1, rest.size()));
  while (key.ends_with('/')) {
    key.remove_suffix(1);
  }
  while (key.starts_with('/')) {
    key.remove_prefix(1);
  }
  location.key = key;
  if (location.bucket.empty() || location.bucket.find('@') != location.bucket.npos) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{}://...: the bucket is missing", location.scheme),
        fmt::format(
            "write {}://BUCKET/NAME; credentials are read from the environment: {}",
            location.scheme,
            credentials_of(location.scheme)));
  }
  return location;
}

void Upload::append(std::span<const std::byte> bytes) {
  check(raw_->append(bytes.data(), bytes.size()), "write", to_);
  size_ += bytes.size();
}

void Upload::finish() {
  check(raw_->finish(), "write", to_);
  const auto there = Store::of(to_).find(to_);
  check(there && there->size == size_ ? "" : "the store has only part of the object", "write", to_);
}

Store::Store(std::unique_ptr<RawStore> raw, Location bucket)
    : raw_(std::move(raw)),
      bucket_(std::move(bucket)) {}

Store& Store::of(const Location& location) {
  static std::mutex mutex;
  // Never destroyed because the library's own state is destroyed first at exit.
  static auto& opened = *new std::map<std::pair<std::string, std::string>, std::unique_ptr<Store>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Store>& store = opened[{location.scheme, location.bucket}];
  if (store == nullptr) {
    std::string problem;
    const Location bucket{location.scheme, location.bucket, ""};
    std::unique_ptr<RawStore> raw(
        bucket_library(location)(location.scheme.c_str(), location.bucket.c_str(), problem));
    check(problem, "open", bucket);
    store.reset(new Store(std::move(raw), bucket));
  }
  return *store;
}

Location Store::at(std::string_view key) const {
  return {bucket_.scheme, bucket_.bucket, std::string(key)};
}

std::vector<Object> Store::list(const Location& location, Depth depth) {
  std::vector<Object> objects;
  bool found = true;
  for (int i = 0; i < kLooks && objects.empty(); ++i) {
    found = true;
    check(raw_->list(location.key, depth == Depth::kAll, objects, found), "list", location);
  }
  check(found ? "" : "NO_SUCH_BUCKET", "list", location);
  std::sort(objects.begin(), objects.end(), [](const Object& a, const Object& b) {
    return a.key < b.key;
  });
  return objects;
}

std::optional<Object> Store::find(const Location& location) {
  Object object;
  bool found = false;
  for (int i = 0; i < kLooks && object.size == 0; ++i) {
    check(raw_->find(location.key, object, found), "find", location);
  }
  return found ? std::optional(object) : std::nullopt;
}

void Store::read(const Object& object, uint64_t offset, std::span<std::byte> bytes) {
  const auto end = bytes.last(std::min(bytes.size(), size_t{16}));
  std::vector<std::byte> mark(end.size());
  std::random_device random;
  for (int i = 0; i < kReads; ++i) {
    std::ranges::generate(mark, [&] { return static_cast<std::byte>(random()); });
    std::ranges::copy(mark, end.begin());
    check(raw_->read(object, offset, bytes.data(), bytes.size()), "read", at(object.key));
    if (bytes.empty() || !std::ranges::equal(mark, end)) {
      return;
    }
  }
  check("the store returns empty responses", "read", at(object.key));
}

void Store::read_whole(Object object, const std::function<void(const Object& current)>& read) {
  const Location place = at(object.key);
  for (int i = 0; i < kReads; ++i) {
    read(object);
    const auto now = find(place);
    if (now && now->size == object.size) {
      return;
    }
    check(now ? "" : "the object was removed", "read", place);
    object = *now;
  }
  check("the object changes during every attempt", "read", place);
}

std::string Store::read_text(Object object) {
  std::string text;
  read_whole(std::move(object), [&](const Object& current) {
    text.assign(current.size, '\0');
    read(current, 0, std::as_writable_bytes(std::span(text)));
  });
  return text;
}

void Store::read_file(Object object, File& file) {
  std::vector<std::byte> buffer;
  read_whole(std::move(object), [&](const Object& current) {
    file.resize(current.size);
    for (uint64_t offset = 0; offset < current.size; offset += buffer.size()) {
      buffer.resize(std::min(kBlockBytes, current.size - offset));
      read(current, offset, buffer);
      file.write_at(offset, buffer);
    }
  });
}

void Store::write(const Location& to, const std::function<void(Upload&)>& fill) {
  for (int tries = 1;; ++tries) {
    try {
      std::unique_ptr<RawUpload> raw;
      check(raw_->upload(to.key, raw), "write", to);
      Upload upload(std::move(raw), to);
      fill(upload);
      upload.finish();
      return;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kEnvironment || tries == kWrites) {
        throw;
      }
    }
  }
}

void Store::write(const Location& to, std::string_view text) {
  write(to, [&](Upload& upload) { upload.append(std::as_bytes(std::span(text))); });
}

void Store::remove(const Location& location) {
  check(raw_->remove(location.key), "remove", location);
}

void Store::remove_below(const Location& location) {
  check(raw_->remove_below(location.key), "remove", location);
}

}  // namespace lockstep::objects
