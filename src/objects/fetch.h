// Local copies of what lies in object stores: below lockstep/objects/ of the user's cache, each
// fetched once.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "objects/store.h"

namespace lockstep::objects {

/// The name of an object below `base`, as a path in a folder. Error (data) where it would lead out.
std::string name_below(const Location& base, const Object& object);

/// Fetches one object to `path`, unless there is a file: from where an earlier fetch of it was cut
/// off. Whoever calls it at the same time waits and finds it there.
void fetch_file(const Object& object, const Location& place, const std::filesystem::path& path);

/// Which objects are wanted, by their keys; empty: all.
using Wanted = std::function<bool(std::string_view key)>;

/// Fetches the objects that `word` names, and returns their copies' paths, by key: an object, a
/// pattern ("s3://bucket/web/*.jsonl", as a shell has it; * passes no slash), or else all below a
/// folder that `wanted` takes. Copies keep their names. An object that was written anew is fetched
/// anew. A fetch that was cut off goes on where it was. Ranks may call it all at once: those of one
/// machine share the work. Nothing where there is nothing.
std::vector<std::filesystem::path> fetch_matching(
    const std::string& word, const Wanted& wanted = {});

/// The copy of a folder: of what stands in it and `wanted` takes, not of folders in it. Error
/// (data) where there is nothing.
std::filesystem::path fetch_folder(const Location& location, const Wanted& wanted = {});

}  // namespace lockstep::objects
