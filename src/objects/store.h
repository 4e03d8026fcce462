// Object stores: s3://, gs:// and az://, by name.
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
#include "objects/library.h"

namespace lockstep::objects {

/// Whether a word of the user's is a place in an object store, and no path.
bool is_remote(std::string_view word);

/// A place in an object store: a bucket, an object, or what objects' keys begin with.
struct Location {
  std::string scheme;  // "s3", "gs", "az"
  std::string bucket;
  std::string key;  // without a slash at either end; empty: the bucket

  std::string text() const;  // as the user writes it
  Location below(std::string_view name) const;
};
/// Error (config) where it names no bucket.
Location parse_location(std::string_view text);

/// An object that is being written, from front to back. Dropped before finish() it is given up: no
/// reader sees anything of it.
class Upload {
 public:
  Upload(std::unique_ptr<RawUpload> raw, Location to) : raw_(std::move(raw)), to_(std::move(to)) {}
  void append(std::span<const std::byte> bytes);
  /// Looks whether the store has all of it: some take a request that was cut off for a whole one.
  void finish();

 private:
  std::unique_ptr<RawUpload> raw_;
  Location to_;
  uint64_t size_ = 0;
};

/// A bucket. What was written is seen by every reader and every listing from then on, and an object
/// is replaced whole or not at all: these stores promise so. Thread-safe. Every failure is an Error
/// (environment) that names the place and what to do. A request that was cut off is tried again a
/// few times, by the library.
class Store {
 public:
  /// Opened once a bucket and process. Error (environment): the library is not there.
  static Store& of(const Location& location);

  enum class Depth { kFolder, kAll };
  /// The objects below `location`/, by key; Error where there is no such bucket.
  std::vector<Object> list(const Location& location, Depth depth = Depth::kAll);
  std::optional<Object> find(const Location& location);
  /// Fills `bytes` from `offset` on.
  void read(const Object& object, uint64_t offset, std::span<std::byte> bytes);
  /// All of it, as it is now if it was written anew.
  std::string read_text(Object object);
  /// An object of what `fill` appends, which begins anew where the store has lost some of it.
  void write(const Location& to, const std::function<void(Upload&)>& fill);
  void write(const Location& to, std::string_view text);
  /// Nothing where it is not there.
  void remove(const Location& location);
  void remove_below(const Location& location);

 private:
  Store(std::unique_ptr<RawStore> raw, Location bucket);
  Location at(std::string_view key) const;

  std::unique_ptr<RawStore> raw_;
  Location bucket_;
};

}  // namespace lockstep::objects
