// Object stores (s3://, gs:// and az:// locations).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "objects/library.h"

namespace lockstep::objects {

/// Returns true if `word` is an object-store location rather than a path.
bool is_remote(std::string_view word);

/// Location in an object store: a bucket, an object, or a prefix of keys.
struct Location {
  std::string scheme;  // "s3", "gs", "az"
  std::string bucket;
  std::string key;  // without leading or trailing slash; empty: the bucket

  std::string text() const;  // s3://bucket/key
  Location below(std::string_view name) const;
};
/// Throws Error (config) if the location has no bucket.
Location parse_location(std::string_view text);

/// Sequential upload of one object. If destroyed before finish(), no object is created.
class Upload {
 public:
  Upload(std::unique_ptr<RawUpload> raw, Location to) : raw_(std::move(raw)), to_(std::move(to)) {}
  void append(std::span<const std::byte> bytes);
  /// Completes the upload. Checks the object's size because some stores accept a truncated request.
  void finish();

 private:
  std::unique_ptr<RawUpload> raw_;
  Location to_;
  uint64_t size_ = 0;
};

/// One bucket. Writes are visible to all later reads and listings, and objects are replaced
/// atomically, as these stores guarantee. Thread-safe. Throws Error (environment) with the location
/// and a hint on failure. The library retries interrupted requests a few times.
class Store {
 public:
  /// Returns the handle of a bucket in this process. Opens it on first use. Throws Error
  /// (environment) if the library cannot be loaded.
  static Store& of(const Location& location);

  enum class Depth { kFolder, kAll };
  /// Returns the objects whose keys begin with `location`/, sorted by key. Throws Error if the
  /// bucket does not exist.
  std::vector<Object> list(const Location& location, Depth depth = Depth::kAll);
  std::optional<Object> find(const Location& location);
  /// Fills `bytes` with data starting at `offset`.
  void read(const Object& object, uint64_t offset, std::span<std::byte> bytes);
  /// Reads a whole object. If it was replaced since it was found, reads the current content.
  std::string read_text(Object object);
  /// The same into a file, in bounded memory.
  void read_file(Object object, File& file);
  /// Writes what `fill` appends as one object. `fill` is called again if the store lost part of the
  /// data.
  void write(const Location& to, const std::function<void(Upload&)>& fill);
  void write(const Location& to, std::string_view text);
  /// Removes an object. Has no effect if it does not exist.
  void remove(const Location& location);
  void remove_below(const Location& location);

 private:
  Store(std::unique_ptr<RawStore> raw, Location bucket);
  Location at(std::string_view key) const;
  void read_whole(Object object, const std::function<void(const Object& current)>& read);

  std::unique_ptr<RawStore> raw_;
  Location bucket_;
};

}  // namespace lockstep::objects
