// Downloads objects into the user's cache.
#include "objects/fetch.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/user_cache.h"

namespace lockstep::objects {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kReadBytes = uint64_t{8} << 20;
constexpr uint64_t kSyncBytes = 2 * kReadBytes;  // between two syncs
constexpr const char* kPartial = ".partial";

/// File with an exclusive lock for the lifetime of the object.
class LockedFile {
 public:
  explicit LockedFile(const fs::path& path) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct flock range{};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    int result = descriptor_ < 0 ? -1 : 0;
    while (result == 0 && (result = ::fcntl(descriptor_, F_OFD_SETLKW, &range)) != 0 &&
           errno == EINTR) {
      result = 0;
    }
    if (result != 0) {
      const Error error = system_error(ErrorKind::kEnvironment, "write", path);
      ::close(descriptor_);
      throw error;
    }
  }
  ~LockedFile() { ::close(descriptor_); }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

 private:
  int descriptor_ = -1;
};

/// Returns how many bytes of an interrupted download are on the device. A power loss can leave a
/// file with its size but without its last data, so a multiple of kSyncBytes is synced before
/// anything is written after it.
uint64_t kept_bytes(uint64_t size) {
  return size == 0 ? 0 : (size - 1) / kSyncBytes * kSyncBytes;
}

/// Fetches `objects`, whose keys all begin with the key of `base`, into a folder whose name is a
/// hash of their keys, sizes and times. The rest of each key is the name of its copy.
fs::path fetch_set(const Location& base, const std::vector<Object>& objects) {
  Hasher hasher;
  hasher.update_field(base.text());
  for (const Object& object : objects) {
    hasher.update_field(fmt::format("{} {} {}", object.key, object.size, object.changed_ns));
  }
  const fs::path folder = user_cache_folder() / "objects" / base.scheme / base.bucket /
                          hasher.hex().substr(0, 12) / base.key;
  // Each process starts with a different object so that processes rarely wait for each other.
  const size_t count = objects.size(), first = static_cast<size_t>(::getpid());
  for (size_t i = 0; i < count; ++i) {
    const Object& object = objects[(first + i) % count];
    const std::string name = name_below(base, object);
    fetch_file(object, base.below(name), folder / name);
  }
  return folder;
}

Location parent_of(const Location& location) {
  const size_t slash = location.key.rfind('/');
  return {
      location.scheme,
      location.bucket,
      slash == std::string::npos ? "" : location.key.substr(0, slash)};
}

bool matches(const std::string& pattern, const std::string& key) {
  return ::fnmatch(pattern.c_str(), key.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0;
}

}  // namespace

std::string name_below(const Location& base, const Object& object) {
  const std::string name = object.key.substr(base.key.empty() ? 0 : base.key.size() + 1);
  const fs::path path(name);
  if (path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{} has an object \"{}\", which is not a valid file name", base.text(), object.key),
        "rename it, or give the other objects individually");
  }
  return name;
}

void fetch_file(const Object& object, const Location& place, const fs::path& path) {
  Store& store = Store::of(place);
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    return;
  }
  create_folders(path.parent_path(), ErrorKind::kEnvironment);
  fs::path partial = path;
  partial += kPartial;
  const LockedFile lock(partial);
  if (fs::exists(path, ignored)) {  // already fetched by another rank
    if (fs::file_size(partial, ignored) == 0) {
      fs::remove(partial, ignored);
    }
    return;
  }
  File file(partial, File::Mode::kWrite, ErrorKind::kEnvironment);
  uint64_t at = file.size() > object.size ? 0 : kept_bytes(file.size());
  file.resize(at);
  log_info("fetching {}{}", place.text(), at > 0 ? fmt::format(", resumed at byte {}", at) : "");
  std::vector<std::byte> buffer;
  for (; at < object.size; at += buffer.size()) {
    if (at % kSyncBytes == 0) {
      file.sync();
    }
    buffer.resize(std::min(kReadBytes, object.size - at));
    store.read(object, at, buffer);
    file.write_at(at, buffer);
  }
  const auto now = store.find(place);
  constexpr int64_t kSecond = 1'000'000'000;  // some stores list times
  if (!now || now->size != object.size ||
      now->changed_ns / kSecond != object.changed_ns / kSecond) {
    fs::remove(partial, ignored);
    throw Error(
        ErrorKind::kData,
        fmt::format("{} changed while it was read", place.text()),
        "run the command again when the object is no longer written to");
  }
  file.sync();
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    throw system_error(ErrorKind::kEnvironment, "write", path);
  }
}

std::vector<fs::path> fetch_matching(const std::string& word, const Wanted& wanted) {
  const Location location = parse_location(word);
  Store& store = Store::of(location);
  const size_t special = location.key.find_first_of("*?[");
  Location base = location;
  std::vector<Object> objects;
  if (special != std::string::npos) {
    base.key.resize(special);
    base = parent_of(base);
    objects = store.list(base);
    std::erase_if(objects, [&](const Object& each) { return !matches(location.key, each.key); });
  } else if (const auto object = store.find(location)) {
    objects = {*object};
    base = parent_of(location);
  } else {
    objects = store.list(location);
    std::erase_if(objects, [&](const Object& each) { return wanted && !wanted(each.key); });
  }
  std::vector<fs::path> paths;
  if (!objects.empty()) {
    const fs::path folder = fetch_set(base, objects);
    for (const Object& object : objects) {
      paths.push_back(folder / name_below(base, object));
    }
  }
  return paths;
}

fs::path fetch_folder(const Location& location, const Wanted& wanted) {
  std::vector<Object> objects = Store::of(location).list(location, Store::Depth::kFolder);
  std::erase_if(objects, [&](const Object& each) { return wanted && !wanted(each.key); });
  if (objects.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("no objects in {}", location.text()),
        "check the name; the store's own client lists the objects of the bucket");
  }
  return fetch_set(location, objects);
}

}  // namespace lockstep::objects
