// Recording disk that simulates a loss of power.
#include "power_loss.h"

#include <algorithm>
#include <stdexcept>

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

RecordingDisk::RecordingDisk(fs::path root) : root_(std::move(root)) {}

std::vector<std::string> RecordingDisk::parts(const fs::path& path) const {
  std::vector<std::string> names;
  for (const fs::path& part : path.lexically_normal().lexically_relative(root_)) {
    if (!part.empty() && part != ".") {
      names.push_back(part.string());
    }
  }
  return names;
}

std::shared_ptr<RecordingDisk::Node> RecordingDisk::find(
    Node& root, std::span<const std::string> parts) {
  std::shared_ptr<Node> at(&root, [](Node*) {});
  for (const std::string& part : parts) {
    const auto found = at->names.find(part);
    if (found == at->names.end()) {
      return nullptr;
    }
    at = found->second;
  }
  return at;
}

void RecordingDisk::record(Operation operation) {
  const std::scoped_lock lock(mutex_);
  operations_.push_back(std::move(operation));
}

void RecordingDisk::create_folder(const fs::path& folder) {
  const std::vector<std::string> names = parts(folder);
  record([names](Node& root) {
    Node* at = &root;
    for (const std::string& name : names) {
      if (!at->names.contains(name)) {
        auto made = std::make_shared<Node>();
        made->is_folder = true;
        at->change([name, made](Names& all) { all[name] = made; });
      }
      at = at->names.at(name).get();
    }
  });
  Disk::create_folder(folder);
}

void RecordingDisk::create_file(const fs::path& path, uint64_t size) {
  record([names = parts(path), size](Node& root) {
    auto made = std::make_shared<Node>();
    made->size = size;
    find(root, std::span(names).first(names.size() - 1))
        ->change([name = names.back(), made](Names& all) { all[name] = made; });
  });
  Disk::create_file(path, size);
}

void RecordingDisk::write(File& file, uint64_t offset, std::span<const std::byte> bytes) {
  std::string kept(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  record([names = parts(file.path()), offset, kept = std::move(kept)](Node& root) {
    find(root, names)->written.push_back({offset, kept});
  });
  Disk::write(file, offset, bytes);
}

void RecordingDisk::sync(File& file) {
  Disk::sync(file);
  record([names = parts(file.path())](Node& root) {
    const auto node = find(root, names);
    node->synced.insert(node->synced.end(), node->written.begin(), node->written.end());
    node->written.clear();
  });
}

void RecordingDisk::sync_folder(const fs::path& folder) {
  Disk::sync_folder(folder);
  if (!parts(folder).empty() && parts(folder).front() == "..") {
    return;  // above the root
  }
  record([names = parts(folder)](Node& root) {
    const auto node = find(root, names);
    node->synced_names = node->names;
    node->changes.clear();
  });
}

void RecordingDisk::rename(const fs::path& from, const fs::path& to) {
  record([before = parts(from), after = parts(to)](Node& root) {
    if (!std::equal(before.begin(), before.end() - 1, after.begin(), after.end() - 1)) {
      throw std::logic_error("a rename from one folder to another");  // saves never do this
    }
    find(root, std::span(before).first(before.size() - 1))
        ->change([old = before.back(), name = after.back()](Names& all) {
          if (const auto moved = all.extract(old)) {
            all[name] = moved.mapped();
          }
        });
  });
  Disk::rename(from, to);
}

bool RecordingDisk::exchange(const fs::path& a, const fs::path& b) {
  if (!can_exchange || !Disk::exchange(a, b)) {
    return false;
  }
  record([first = parts(a), second = parts(b)](Node& root) {
    find(root, std::span(first).first(first.size() - 1))
        ->change([one = first.back(), other = second.back()](Names& all) {
          std::swap(all.at(one), all.at(other));
        });
  });
  return true;
}

void RecordingDisk::remove_below(Node& folder, const std::string& name) {
  const std::shared_ptr<Node> going = folder.names.at(name);
  while (going->is_folder && !going->names.empty()) {
    remove_below(*going, going->names.begin()->first);
  }
  folder.change([name](Names& all) { all.erase(name); });
}

void RecordingDisk::remove(const fs::path& path) {
  record([names = parts(path)](Node& root) {
    if (find(root, names) != nullptr) {
      remove_below(*find(root, std::span(names).first(names.size() - 1)), names.back());
    }
  });
  Disk::remove(path);
}

void RecordingDisk::make(const Node& node, std::mt19937_64& random, const fs::path& path) {
  if (node.is_folder) {
    Names names = node.synced_names;
    const size_t kept = random() % (node.changes.size() + 1);
    for (size_t i = 0; i < kept; ++i) {
      node.changes[i](names);
    }
    fs::create_directory(path);
    for (const auto& [name, child] : names) {
      make(*child, random, path / name);
    }
    return;
  }
  File file(path, File::Mode::kCreate);
  // A file whose size was not synced may have any size; bytes that were not written are zeros.
  if (!node.synced.empty() || random() % 2 == 0) {
    file.resize(node.size);
  }
  const auto put = [&](const Write& write) {
    file.write_at(write.offset, std::as_bytes(std::span(write.bytes)));
  };
  for (const Write& write : node.synced) {
    put(write);
  }
  for (const Write& write : node.written) {
    if (random() % 2 == 0) {
      put(write);
    }
  }
}

void RecordingDisk::lose_power(
    size_t count, std::mt19937_64& random, const fs::path& folder) const {
  Node root;
  root.is_folder = true;
  for (size_t i = 0; i < count; ++i) {
    operations_[i](root);
  }
  make(root, random, folder);
}

}  // namespace lockstep::checkpoint
