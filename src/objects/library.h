// Interface of liblockstep_object_stores.so (src/object_stores), which accesses object stores
// through Arrow's file systems. The library is loaded when the first object-store location is used.
// Every call returns the library's error message, which may contain credentials, or an empty string
// on success. Thread-safe except for uploads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::objects {

struct Object {
  std::string key;  // relative to the bucket
  uint64_t size = 0;
  int64_t changed_ns = 0;  // time of the last write by the store's clock
};

class RawUpload {
 public:
  /// Abandons an unfinished upload: no object is created.
  virtual ~RawUpload() = default;
  virtual std::string append(const void* bytes, size_t count) = 0;
  /// Completes the object. Until then readers see the object that it replaces, if any; a new object
  /// may appear empty before.
  virtual std::string finish() = 0;
};

/// One bucket.
class RawStore {
 public:
  virtual ~RawStore() = default;
  /// Lists the objects whose keys begin with `prefix`/ (empty: all), including those of subfolders
  /// if `deep`. `found` is false if the bucket does not exist.
  virtual std::string list(
      const std::string& prefix, bool deep, std::vector<Object>& objects, bool& found) = 0;
  /// Looks up an object and its size. `found` is false if it does not exist.
  virtual std::string find(const std::string& key, Object& object, bool& found) = 0;
  virtual std::string read(const Object& object, uint64_t offset, void* bytes, size_t count) = 0;
  virtual std::string upload(const std::string& key, std::unique_ptr<RawUpload>& upload) = 0;
  virtual std::string remove(const std::string& key) = 0;
  /// Removes all objects below `prefix`/.
  virtual std::string remove_below(const std::string& prefix) = 0;
};

/// The library's entry point `lockstep_open_bucket`. Returns null and sets `problem` on failure.
using OpenBucket = RawStore* (*)(const char* scheme, const char* bucket, std::string& problem);

}  // namespace lockstep::objects
