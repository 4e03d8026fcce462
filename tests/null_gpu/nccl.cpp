// NCCL between processes. A communicator is a file that its ranks map. Each rank posts the
// operation that its device has reached and continues when all other ranks have posted the same; a
// mismatch is reported by broken().
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "null_gpu/machine.h"
#include "null_gpu/order.h"
#include "null_gpu/report.h"

namespace null_gpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRanks = 16, kFrames = 24, kSlots = 2;

/// The operation that a rank's device has reached.
struct Post {
  std::atomic<uint64_t> number;  // from 1; written last
  char what[24];
  uint64_t count;
  int type, operation, root;
  bool is_replayed;
  uint64_t frames[kFrames];  // addresses within the program
};
struct Shared {
  std::atomic<int> joined[kRanks];
  Post collectives[kRanks][kSlots];
  Post sends[kRanks][kRanks][kSlots],
      receives[kRanks][kRanks][kSlots];          // indexed by sender, receiver
  size_t content_bytes[kRanks][kRanks][kSlots];  // bytes of the message; 0: not written by the host
  char contents[kRanks][kRanks][kSlots][kMostRemembered];
};

struct Part {
  const char* what = "";
  uint64_t count = 0;
  int type = 0, operation = 0, root = 0;
  int from = -1, to = -1;    // for messages only
  bool is_replayed = false;  // launched by a graph
  void* memory = nullptr;
  uint64_t number = 0;
  Site at{};
};

size_t bytes_of(const Part& part) {
  switch (part.type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return part.count;
    case ncclFloat16:
    case ncclBfloat16:
      return 2 * part.count;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8 * part.count;
    default:
      return 4 * part.count;
  }
}

struct Communicator {
  Shared* shared = nullptr;
  std::string name;
  int rank = 0, size = 0, device = 0;
  bool is_aborted = false;
  uint64_t collectives = 0;
  uint64_t sends[kRanks] = {}, receives[kRanks] = {};
  uint64_t enqueued = 0, finished = 0;  // operations are sequential, on any stream
};
Communicator& of(ncclComm_t handle) {
  return *reinterpret_cast<Communicator*>(handle);
}

std::string told(const Part& part, int rank) {
  std::string text = "rank " + std::to_string(rank) + ": " + part.what;
  if (part.from >= 0) {
    text += " from " + std::to_string(part.from) + " to " + std::to_string(part.to);
  }
  text += ", " + std::to_string(part.count) + " of type " + std::to_string(part.type);
  text += ", operation " + std::to_string(part.operation) + ", root " + std::to_string(part.root);
  text += part.is_replayed ? ", by a graph" : "";
  return text + told_within_program(part.at) + "\n";
}
Part part_of(const Post& post) {
  Part part{"", post.count, post.type, post.operation, post.root};
  part.what = post.what;
  part.is_replayed = post.is_replayed;
  for (const uint64_t frame : post.frames) {
    if (frame != 0) {
      part.at.push_back(frame);
    }
  }
  return part;
}

void put(Post& post, const Part& part) {
  std::snprintf(post.what, sizeof post.what, "%s", part.what);
  post.count = part.count;
  post.type = part.type;
  post.operation = part.operation;
  post.root = part.root;
  post.is_replayed = part.is_replayed;
  for (int i = 0; i < kFrames; ++i) {
    post.frames[i] = static_cast<size_t>(i) < part.at.size() ? part.at[static_cast<size_t>(i)] : 0;
  }
  post.number.store(part.number, std::memory_order_release);
}

/// Returns the operations on which other processes are blocked at this time, in any communicator.
/// Each process writes its own to a file.
std::string stuck_beside(const std::string& own) {
  const char* const rank = std::getenv("RANK");
  const std::filesystem::path mine = folder() + "/stuck-" + (rank == nullptr ? "0" : rank);
  std::ofstream(mine) << own;
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::string text;
  for (const auto& file : std::filesystem::directory_iterator(folder())) {
    if (file.path().filename().string().starts_with("stuck-") && file.path() != mine) {
      std::ifstream in(file.path());
      text += "waits elsewhere: " + std::string(std::istreambuf_iterator<char>(in), {});
    }
  }
  return text;
}

/// Work of one communicator on one stream: a collective, or a group of messages.
class Together final : public Exchange {
 public:
  /// Captured operations have no sequence number; each replay gets one.
  Together(Communicator& communicator, std::vector<Part> parts, bool is_captured = false)
      : communicator_(communicator),
        parts_(std::move(parts)) {
    if (is_captured) {
      return;
    }
    turn_ = communicator_.enqueued++;
    for (Part& part : parts_) {
      part.number = 1 + (part.from < 0                     ? communicator_.collectives++
                         : part.from == communicator_.rank ? communicator_.sends[part.to]++
                                                           : communicator_.receives[part.from]++);
    }
  }

  std::shared_ptr<Exchange> again() override {
    std::vector<Part> parts = parts_;
    for (Part& part : parts) {
      part.is_replayed = true;
    }
    return std::make_shared<Together>(communicator_, std::move(parts));
  }

  bool is_done() override {
    if (communicator_.is_aborted) {
      return true;
    }
    if (communicator_.finished != turn_) {
      return false;
    }
    if (begin_ == Clock::time_point{}) {
      begin_ = Clock::now();
    }
    for (; posted_ < parts_.size(); ++posted_) {
      // A slot is reused when all other ranks have read it, so a rank that is two operations ahead
      // waits.
      send_content(parts_[posted_]);
      put(own_post(parts_[posted_]), parts_[posted_]);
    }
    while (!parts_.empty() && is_met(parts_.back())) {
      parts_done_.push_back(parts_.back());
      parts_.pop_back();
      posted_ = parts_.size();
    }
    if (parts_.empty()) {
      parts_ = std::move(parts_done_);
      ++communicator_.finished;
      return true;
    }
    static const auto patience = std::chrono::seconds(number_setting("PATIENCE", 60));
    if (Clock::now() - begin_ > patience) {
      broken(
          "no other rank joins the operation that this rank waits for",
          told(parts_.back(), communicator_.rank) + absent(parts_.back()) +
              stuck_beside(told(parts_.back(), communicator_.rank)));
    }
    return false;
  }

 private:
  Post& own_post(const Part& part) {
    Shared& shared = *communicator_.shared;
    const uint64_t slot = part.number % kSlots;
    if (part.from < 0) {
      return shared.collectives[communicator_.rank][slot];
    }
    return (
        part.from == communicator_.rank ? shared.sends : shared.receives)[part.from][part.to][slot];
  }

  void send_content(const Part& part) {
    if (part.from != communicator_.rank) {
      return;
    }
    const std::vector<char> content = remembered(part.memory, bytes_of(part));
    const uint64_t slot = part.number % kSlots;
    communicator_.shared->content_bytes[part.from][part.to][slot] = content.size();
    std::copy(
        content.begin(), content.end(), communicator_.shared->contents[part.from][part.to][slot]);
  }

  void receive_content(const Part& part) {
    const uint64_t slot = part.number % kSlots;
    forget(part.memory, bytes_of(part));
    if (communicator_.shared->content_bytes[part.from][part.to][slot] == bytes_of(part)) {
      remember(
          part.memory, bytes_of(part), communicator_.shared->contents[part.from][part.to][slot]);
    }
  }

  void compare(const Part& part, const Post& other, int rank) {
    const bool is_message = part.from >= 0;
    if (part.is_replayed != other.is_replayed) {
      broken(
          "one rank replays a graph, but another launches without one",
          told(part, communicator_.rank) + told(part_of(other), rank));
    }
    if (part.count != other.count || part.type != other.type ||
        (!is_message && (std::strcmp(part.what, other.what) != 0 ||
                         part.operation != other.operation || part.root != other.root))) {
      broken(
          "ranks call different operations",
          told(part, communicator_.rank) + told(part_of(other), rank));
    }
  }

  bool is_met(const Part& part) {
    Shared& shared = *communicator_.shared;
    const uint64_t slot = part.number % kSlots;
    if (part.from >= 0) {
      const bool is_sender = part.from == communicator_.rank;
      const int peer = is_sender ? part.to : part.from;
      const Post& other = (is_sender ? shared.receives : shared.sends)[part.from][part.to][slot];
      const uint64_t number = other.number.load(std::memory_order_acquire);
      if (number == part.number) {
        compare(part, other, peer);
      }
      if (number >= part.number && !is_sender) {
        receive_content(part);
      }
      return number >= part.number;
    }
    for (int rank = 0; rank < communicator_.size; ++rank) {
      const Post& other = shared.collectives[rank][slot];
      const uint64_t number = other.number.load(std::memory_order_acquire);
      if (number < part.number) {
        return false;
      }
      if (number == part.number) {
        compare(part, other, rank);
      }
    }
    return true;
  }

  /// Describes the ranks that are missing, and the last operation of each.
  std::string absent(const Part& part) {
    Shared& shared = *communicator_.shared;
    std::string text = "communicator " + communicator_.name + "\n";
    for (int rank = 0; rank < communicator_.size; ++rank) {
      const Post* last = &shared.collectives[rank][0];
      for (int i = 1; i < kSlots; ++i) {
        const Post& other = shared.collectives[rank][i];
        last = other.number.load() > last->number.load() ? &other : last;
      }
      if (part.from < 0 ? last->number.load() < part.number
                        : rank != communicator_.rank && (rank == part.from || rank == part.to)) {
        text += "missing; last operation: " + told(part_of(*last), rank);
      }
    }
    return text;
  }

  Communicator& communicator_;
  std::vector<Part> parts_, parts_done_;
  size_t posted_ = 0;
  uint64_t turn_ = 0;
  Clock::time_point begin_;
};

/// Operations of a thread since ncclGroupStart().
struct Group {
  int depth = 0;
  std::vector<std::pair<std::pair<Communicator*, Stream*>, std::vector<Part>>> parts;
};
Group& group() {
  thread_local Group group;
  return group;
}

void flush() {
  for (auto& [where, parts] : group().parts) {
    Operation operation{Operation::Kind::kExchange};
    operation.exchange = std::make_shared<Together>(
        *where.first, std::move(parts), where.second->capture != nullptr);
    add_work(*where.second, nullptr);
    add(*where.second, std::move(operation));
  }
  group().parts.clear();
}

/// Memory that NCCL reads and writes, in elements of the part's type.
struct Buffers {
  const void* from = nullptr;
  uint64_t read = 0;
  void* to = nullptr;
  uint64_t written = 0;
};

/// In an in-place gather, the rank's own part is not written.
void touch_written(Stream& stream, const Buffers& buffers, size_t width, const char* what) {
  const auto* const own = static_cast<const char*>(buffers.from);
  auto* const begin = static_cast<char*>(buffers.to);
  const size_t bytes = buffers.written * width, read = buffers.read * width;
  const bool is_in_place = read < bytes && own >= begin && own + read <= begin + bytes;
  const size_t before = is_in_place ? static_cast<size_t>(own - begin) : bytes;
  touch(stream, begin, before, true, what);
  if (is_in_place) {
    touch(stream, begin + before + read, bytes - before - read, true, what);
  }
}

ncclResult_t together(
    ncclComm_t handle, cudaStream_t stream_handle, Part part, const Buffers& buffers) {
  const void* const memory = buffers.from == nullptr ? buffers.to : buffers.from;
  const std::unique_lock lock(mutex());
  Communicator& communicator = of(handle);
  Stream& stream = stream_of(stream_handle);
  if (stream.device != communicator.device || current_device() != communicator.device) {
    broken(std::string(part.what) + " on a device other than its communicator's");
  }
  const Range* const range = range_of(memory);
  if (part.count > 0 && (range == nullptr || range->kind == Kind::kPinned)) {
    broken(std::string(part.what) + " on memory that is not on a device");
  }
  count(part.what);
  count_kernel(part.what);
  part.memory = const_cast<void*>(memory);
  const size_t width = part.count == 0 ? 0 : bytes_of(part) / part.count;
  order_work(stream);
  touch(stream, buffers.from, buffers.read * width, false, part.what);
  touch_written(stream, buffers, width, part.what);
  part.at = within_program(site());
  const std::pair key{&communicator, &stream};
  auto& parts = group().parts;
  auto found =
      std::find_if(parts.begin(), parts.end(), [&](const auto& each) { return each.first == key; });
  if (found == parts.end() || part.from < 0) {
    parts.push_back({key, {std::move(part)}});
  } else {
    found->second.push_back(std::move(part));
  }
  if (group().depth == 0) {
    flush();
  }
  return ncclSuccess;
}

ncclResult_t join(ncclComm_t* result, int size, const std::string& name, int rank) {
  if (size > kRanks || rank < 0 || rank >= size) {
    return ncclInvalidArgument;
  }
  const std::string path = folder() + "/communicator-" + name;
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0666);
  if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) {
    return ncclSystemError;
  }
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  auto* const communicator = new Communicator;
  communicator->shared = static_cast<Shared*>(memory);
  communicator->name = name;
  communicator->rank = rank;
  communicator->size = size;
  communicator->device = current_device();
  if (communicator->shared->joined[rank].exchange(1) != 0) {
    broken("a rank joins a communicator twice");
  }
  // As in NCCL, the call blocks until all ranks have joined.
  const auto end = Clock::now() + std::chrono::seconds(number_setting("PATIENCE", 60));
  for (int other = 0; other < size;) {
    if (communicator->shared->joined[other].load() != 0) {
      ++other;
    } else if (Clock::now() > end) {
      broken(
          "rank " + std::to_string(other) + " does not join a communicator that rank " +
          std::to_string(rank) + " joins");
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  *result = reinterpret_cast<ncclComm_t>(communicator);
  count("communicators");
  if (size > 1) {
    go_on_alone();
  }
  return ncclSuccess;
}

std::string name_of(const ncclUniqueId& id) {
  char text[33];
  for (int i = 0; i < 16; ++i) {
    std::snprintf(text + 2 * i, 3, "%02x", static_cast<unsigned char>(id.internal[i]));
  }
  return text;
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error of the null GPU's NCCL";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  return ::getrandom(id->internal, 16, 0) == 16 ? ncclSuccess : ncclSystemError;
}
ncclResult_t ncclCommInitRank(ncclComm_t* result, int size, ncclUniqueId id, int rank) {
  return join(result, size, name_of(id), rank);
}
ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* result, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  return join(result, size, name_of(id), rank);
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  std::unique_lock lock(mutex());
  wait_for(
      lock, [&] { return of(handle).finished == of(handle).enqueued || of(handle).is_aborted; });
  return ncclSuccess;  // graphs may still refer to it
}
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const std::unique_lock lock(mutex());
  of(handle).is_aborted = true;
  count("communicators_aborted");
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t handle, int* size) {
  *size = of(handle).size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  *rank = of(handle).rank;
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group().depth == 0) {
    const std::unique_lock lock(mutex());
    flush();
  }
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(
    const void* from,
    void* to,
    size_t count,
    ncclDataType_t type,
    ncclRedOp_t operation,
    ncclComm_t communicator,
    cudaStream_t stream) {
  return together(
      communicator, stream, {"ncclAllReduce", count, type, operation}, {from, count, to, count});
}
ncclResult_t ncclReduce(
    const void* from,
    void* to,
    size_t count,
    ncclDataType_t type,
    ncclRedOp_t operation,
    int root,
    ncclComm_t communicator,
    cudaStream_t stream) {
  return together(
      communicator,
      stream,
      {"ncclReduce", count, type, operation, root},
      {from, count, to, of(communicator).rank == root ? count : 0});
}
ncclResult_t ncclBroadcast(
    const void* from,
    void* to,
    size_t count,
    ncclDataType_t type,
    int root,
    ncclComm_t communicator,
    cudaStream_t stream) {
  return together(
      communicator,
      stream,
      {"ncclBroadcast", count, type, 0, root},
      {from, of(communicator).rank == root ? count : 0, to, count});
}
ncclResult_t ncclBcast(
    void* memory,
    size_t count,
    ncclDataType_t type,
    int root,
    ncclComm_t communicator,
    cudaStream_t stream) {
  return together(
      communicator, stream, {"ncclBroadcast", count, type, 0, root}, {nullptr, 0, memory, count});
}
ncclResult_t ncclReduceScatter(
    const void* from,
    void* to,
    size_t count,
    ncclDataType_t type,
    ncclRedOp_t operation,
    ncclComm_t communicator,
    cudaStream_t stream) {
  return together(
      communicator,
      stream,
      {"ncclReduceScatter", count, type, operation},
      {from, count * static_cast<uint64_t>(of(communicator).size), to, count});
}
ncclResult_t ncclAllGather(
    const void* from,
    void* to,
    size_t count,
    ncclDataType_t type,
    ncclComm_t communicator,
    cudaStream_t stream) {
  return together(
      communicator,
      stream,
      {"ncclAllGather", count, type},
      {from, count, to, count * static_cast<uint64_t>(of(communicator).size)});
}
ncclResult_t ncclAlltoAll(
    const void* from,
    void* to,
    size_t count,
    ncclDataType_t type,
    ncclComm_t communicator,
    cudaStream_t stream) {
  return together(
      communicator,
      stream,
      {"ncclAlltoAll", count, type},
      {from,
       count * static_cast<uint64_t>(of(communicator).size),
       to,
       count * static_cast<uint64_t>(of(communicator).size)});
}
ncclResult_t ncclSend(
    const void* from,
    size_t count,
    ncclDataType_t type,
    int peer,
    ncclComm_t communicator,
    cudaStream_t stream) {
  const int own = of(communicator).rank;
  return together(communicator, stream, {"ncclSend", count, type, 0, 0, own, peer}, {from, count});
}
ncclResult_t ncclRecv(
    void* to,
    size_t count,
    ncclDataType_t type,
    int peer,
    ncclComm_t communicator,
    cudaStream_t stream) {
  const int own = of(communicator).rank;
  return together(
      communicator, stream, {"ncclRecv", count, type, 0, 0, peer, own}, {nullptr, 0, to, count});
}

}  // extern "C"
