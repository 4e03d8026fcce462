// Local copies of objects in object stores, below lockstep/objects/ of the user's cache. Each
// object is fetched once.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "objects/store.h"

namespace lockstep::objects {

/// Returns the name of an object below `base` as a relative path. Throws Error (data) if it would
/// leave the folder.
std::string name_below(const Location& base, const Object& object);

/// Fetches one object to `path` unless the file exists, and resumes an interrupted fetch.
/// Concurrent callers wait for the first one to finish.
void fetch_file(const Object& object, const Location& place, const std::filesystem::path& path);

/// Filter of objects by key; empty: all.
using Wanted = std::function<bool(std::string_view key)>;

/// Fetches the objects that `word` names and returns the paths of their copies, sorted by key.
/// `word` is an object, a pattern ("s3://bucket/web/*.jsonl"; as in a shell, * does not match a
/// slash), or a folder, of which all objects accepted by `wanted` are fetched. Copies keep their
/// names. Changed objects are fetched again, and interrupted fetches are resumed. All ranks may
/// call it concurrently; ranks of one machine share the work. Returns an empty list if nothing
/// matches.
std::vector<std::filesystem::path> fetch_matching(
    const std::string& word, const Wanted& wanted = {});

/// Fetches the objects of a folder that `wanted` accepts, without subfolders, and returns the local
/// folder. Throws Error (data) if there are none.
std::filesystem::path fetch_folder(const Location& location, const Wanted& wanted = {});

}  // namespace lockstep::objects
