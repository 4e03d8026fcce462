// What liblockstep_object_stores.so gives (src/object_stores): object stores by Arrow's file
// systems. It is opened where a location of an object store is met, and nowhere else. Every call
// returns what went wrong, in the library's words; empty: nothing. Thread-safe but for an upload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::objects {

struct Object {
  std::string key;  // within the bucket
  uint64_t size = 0;
  int64_t changed_ns = 0;  // when it was written, by the store's clock
};

class RawUpload {
 public:
  /// What was not finished is given up: no object appears.
  virtual ~RawUpload() = default;
  virtual std::string append(const void* bytes, size_t count) = 0;
  /// The object is there, whole, from here on. What it replaces is there until then; a new one may
  /// be there without content before.
  virtual std::string finish() = 0;
};

/// One bucket.
class RawStore {
 public:
  virtual ~RawStore() = default;
  /// The objects whose keys begin with `prefix`/ (all: empty); those of deeper folders where
  /// `deep`. `found`: whether there is such a bucket.
  virtual std::string list(
      const std::string& prefix, bool deep, std::vector<Object>& objects, bool& found) = 0;
  /// Its size is that of the object; `found` is false where there is none.
  virtual std::string find(const std::string& key, Object& object, bool& found) = 0;
  virtual std::string read(const Object& object, uint64_t offset, void* bytes, size_t count) = 0;
  virtual std::string upload(const std::string& key, std::unique_ptr<RawUpload>& upload) = 0;
  virtual std::string remove(const std::string& key) = 0;
  /// Everything below `prefix`/.
  virtual std::string remove_below(const std::string& prefix) = 0;
};

/// The library's entry `lockstep_open_bucket`; null where `problem` says why.
using OpenBucket = RawStore* (*)(const char* scheme, const char* bucket, std::string& problem);

}  // namespace lockstep::objects
