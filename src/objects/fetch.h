// Local copies of objects in object stores. They are stored in lockstep/objects/ in the user's
// cache, and each object is fetched once.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "objects/store.h"

namespace lockstep::objects {

/// Returns the name of an object relative to `base`. Throws Error (data) if the path would leave
/// the folder.
std::string name_below(const Location& base, const Object& object);

/// Fetches one object to `path` unless the file exists. Resumes an interrupted fetch. Concurrent
/// callers wait for the first one.
void fetch_file(const Object& object, const Location& place, const std::filesystem::path& path);

/// Filter of objects by key; empty: all objects.
using Wanted = std::function<bool(std::string_view key)>;

/// Fetches the objects specified by `word` and returns the paths of the copies, sorted by key.
/// `word` is an object, a pattern ("s3://bucket/web/*.jsonl"; as in a shell, * does not match a
/// slash), or a folder. For a folder, fetches all objects accepted by `wanted`. Copies keep their
/// names. Changed objects are fetched again, and interrupted fetches are resumed. May be called
/// concurrently on all ranks; ranks on one machine share the work. Returns an empty list if nothing
/// matches.
std::vector<std::filesystem::path> fetch_matching(
    const std::string& word, const Wanted& wanted = {});

/// Fetches the objects of a folder that `wanted` accepts, without subfolders. Returns the local
/// folder. Throws Error (data) if there are none.
std::filesystem::path fetch_folder(const Location& location, const Wanted& wanted = {});

}  // namespace lockstep::objects
