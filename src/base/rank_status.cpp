// Implements writing and reading of a rank's status in shared memory.
#include "base/rank_status.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"

namespace lockstep {
namespace {

constexpr off_t kOffset = 4096;  // offset in the file; the first page contains the step
constexpr uint64_t kMagic = 0x31'65'73'6c'75'70'4b'4c;
constexpr int kGroups = 32, kWaits = 8, kRanks = 64, kDims = 6;
constexpr int32_t kOfHost = 1, kOfDevice = 2;  // values of WaitField::used

template <size_t N>
void put(std::array<char, N>& field, std::string_view text) {
  field.fill(0);
  text.copy(field.data(), N - 1);
}

/// Reads up to the first zero byte, because a reader may see a partially written text.
template <size_t N>
std::string text_of(const std::array<char, N>& field) {
  return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

struct RankList {
  int32_t count;
  std::array<int32_t, kRanks> ranks;

  void put(std::span<const int> all) {
    count = static_cast<int32_t>(std::min<size_t>(all.size(), kRanks));
    std::copy_n(all.begin(), count, ranks.begin());
  }
  std::vector<int> list() const {
    return {ranks.begin(), ranks.begin() + std::clamp(count, 0, kRanks)};
  }
};

struct GroupField {
  int32_t used;
  std::array<char, 44> name;
  RankList ranks;
  std::array<int64_t, kMatchedKinds> begun;
};

struct WaitField {
  int32_t used, kind, dims;
  std::array<char, 24> operation;
  std::array<char, 44> group;
  std::array<char, 40> what;
  int64_t sequence, index;
  std::array<int64_t, kDims> shape;
  double since;
  RankList ranks;
};

/// Memory layout of the status.
struct Told {
  int64_t process;
  int32_t rank, ranks;
  std::array<char, 80> coordinate;
  std::array<char, 80> phase;
  double phase_since, changed, report_after, end_after;
  std::array<WaitField, kWaits> waits;
  std::array<GroupField, kGroups> groups;
};
static_assert(std::is_trivially_copyable_v<Told>);

std::mutex& writers() {
  static auto* const one = new std::mutex;  // never destroyed: threads may use it during shutdown
  return *one;
}

PendingCall reading_of(const WaitField& field) {
  PendingCall wait;
  wait.operation = text_of(field.operation);
  wait.group = text_of(field.group);
  wait.what = text_of(field.what);
  wait.sequence = field.sequence;
  wait.shape.assign(field.shape.begin(), field.shape.begin() + std::clamp(field.dims, 0, kDims));
  wait.since = field.since;
  wait.ranks = field.ranks.list();
  wait.kind = static_cast<CallKind>(std::clamp(field.kind, 0, static_cast<int>(kMatchedKinds)));
  wait.index = field.index;
  wait.on_device = field.used == kOfDevice;
  return wait;
}

}  // namespace

struct RankStatus::Page {
  uint64_t magic;
  std::atomic<uint64_t> version;  // odd while a write is in progress
  Told told;
};

const GroupCalls* RankStatusReading::find_group(const PendingCall& wait) const {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const GroupCalls& group) {
    return group.name == wait.group && group.ranks == wait.ranks;
  });
  return found == groups.end() ? nullptr : &*found;
}

RankStatus::RankStatus(const std::filesystem::path& path, int rank, int ranks) {
  descriptor_ = path.empty() ? ::memfd_create("lockstep-pulse", MFD_CLOEXEC)
                             : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  constexpr off_t kSize = kOffset + static_cast<off_t>(sizeof(Page));
  if (descriptor_ < 0 || ::ftruncate(descriptor_, kSize) != 0) {
    return;
  }
  void* const memory =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, kOffset);
  if (memory == MAP_FAILED) {
    return;
  }
  page_ = static_cast<Page*>(memory);
  path_ = path;
  if (path.empty()) {
    path_ = fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_);
  }
  change([&](Told& told) {
    told = {};
    told.process = ::getpid();
    told.rank = rank;
    told.ranks = ranks;
    put(told.phase, "starting");
    told.phase_since = seconds_now();
  });
  page_->magic = kMagic;
}

RankStatus::~RankStatus() {
  if (page_ != nullptr) {
    ::munmap(page_, sizeof(Page));
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

template <class Change>
void RankStatus::change(Change&& change) {
  if (page_ == nullptr) {
    return;
  }
  const std::scoped_lock lock(writers());
  page_->version.fetch_add(1, std::memory_order_acq_rel);
  change(page_->told);
  page_->told.changed = seconds_now();
  page_->version.fetch_add(1, std::memory_order_acq_rel);
}

void RankStatus::set_coordinate(std::string_view text) {
  change([&](Told& told) { put(told.coordinate, text); });
}

void RankStatus::set_limits(double report_after, double end_after) {
  change([&](Told& told) {
    told.report_after = report_after;
    told.end_after = end_after;
  });
}

void RankStatus::begin_phase(std::string_view text) {
  change([&](Told& told) {
    put(told.phase, text);
    told.phase_since = seconds_now();
  });
}

int RankStatus::add_group(std::string_view name, std::span<const int> ranks) {
  int found = -1;
  change([&](Told& told) {
    for (int i = 0; i < kGroups && found < 0; ++i) {
      GroupField& field = told.groups[static_cast<size_t>(i)];
      if (field.used == 0) {
        field = {};
        field.used = 1;
        put(field.name, name);
        field.ranks.put(ranks);
        found = i;
      }
    }
  });
  return found;
}

void RankStatus::remove_group(int group) {
  if (group >= 0) {
    change([&](Told& told) { told.groups[static_cast<size_t>(group)].used = 0; });
  }
}

int64_t RankStatus::begin_call(int group, CallKind kind) {
  int64_t index = 0;
  if (group >= 0 && kind != CallKind::kMessages) {
    change([&](Told& told) {
      index = told.groups[static_cast<size_t>(group)].begun[static_cast<size_t>(kind)]++;
    });
  }
  return index;
}

int RankStatus::begin_wait(const PendingCall& wait) {
  int found = -1;
  change([&](Told& told) {
    for (int i = 0; i < kWaits && found < 0; ++i) {
      WaitField& field = told.waits[static_cast<size_t>(i)];
      if (field.used != 0) {
        continue;
      }
      field = {};
      put(field.operation, wait.operation);
      put(field.group, wait.group);
      put(field.what, wait.what);
      field.sequence = wait.sequence;
      field.index = wait.index;
      field.kind = static_cast<int32_t>(wait.kind);
      field.dims = static_cast<int32_t>(std::min<size_t>(wait.shape.size(), kDims));
      std::copy_n(wait.shape.begin(), field.dims, field.shape.begin());
      field.since = wait.since;
      field.ranks.put(wait.ranks);
      field.used = kOfHost;
      found = i;
    }
  });
  return found;
}

void RankStatus::end_wait(int wait) {
  if (wait >= 0) {
    change([&](Told& told) { told.waits[static_cast<size_t>(wait)].used = 0; });
  }
}

void RankStatus::leave_wait(int wait) {
  if (wait < 0) {
    return;
  }
  change([&](Told& told) {
    int& oldest = left_[next_left_++ % kLeft];
    if (oldest >= 0) {
      told.waits[static_cast<size_t>(oldest)].used = 0;
    }
    oldest = wait;
    told.waits[static_cast<size_t>(wait)].used = kOfDevice;
  });
}

std::optional<RankStatusReading> read_rank_status(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return std::nullopt;
  }
  struct Copy {
    uint64_t magic, version;
    Told told;
  };
  const auto copy = std::make_unique<Copy>();
  const auto again = std::make_unique<Copy>();
  constexpr auto kSize = static_cast<ssize_t>(sizeof(Copy));
  // If a rank is stopped during a write, its version stays odd. Its status is then used as is.
  constexpr int kTries = 20;
  bool whole = false;
  for (int i = 0; i < kTries && !whole; ++i) {
    whole = ::pread(file, copy.get(), sizeof(Copy), kOffset) == kSize &&
            ::pread(file, again.get(), sizeof(Copy), kOffset) == kSize &&
            copy->version == again->version && copy->version % 2 == 0;
  }
  ::close(file);
  if (copy->magic != kMagic) {
    return std::nullopt;
  }
  const Told& told = copy->told;
  RankStatusReading reading;
  reading.process = told.process;
  reading.rank = told.rank;
  reading.ranks = told.ranks;
  reading.coordinate = text_of(told.coordinate);
  reading.phase = text_of(told.phase);
  reading.phase_since = told.phase_since;
  reading.changed = told.changed;
  reading.report_after = told.report_after;
  reading.end_after = told.end_after;
  for (const WaitField& wait : told.waits) {
    if (wait.used != 0) {
      reading.waits.push_back(reading_of(wait));
    }
  }
  for (const GroupField& group : told.groups) {
    if (group.used != 0) {
      reading.groups.push_back({text_of(group.name), group.ranks.list(), group.begun});
    }
  }
  return reading;
}

namespace {

thread_local std::function<void(std::string_view)> phase_observer;

/// Status of this process. Never destroyed because groups and threads use it during shutdown.
struct OfProcess {
  std::mutex mutex;
  std::atomic<RankStatus*> rank_status = nullptr;
  std::atomic<bool> looked = false;
};
OfProcess& of_process() {
  static auto* const one = new OfProcess;
  return *one;
}

int number_of(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

}  // namespace

RankStatus* rank_status() {
  OfProcess& process = of_process();
  if (!process.looked.load(std::memory_order_acquire)) {
    const std::scoped_lock lock(process.mutex);
    const char* const path = std::getenv(kStatusFileVariable);
    if (!process.looked && path != nullptr && *path != '\0') {
      process.rank_status = new RankStatus(path, number_of("RANK", 0), number_of("WORLD_SIZE", 1));
    }
    process.looked = true;
  }
  return process.rank_status.load(std::memory_order_acquire);
}

void begin_rank_status(int rank, int ranks) {
  if (rank_status() == nullptr) {
    const std::scoped_lock lock(of_process().mutex);
    of_process().rank_status = new RankStatus("", rank, ranks);
  }
}

void begin_phase(std::string_view text) {
  if (RankStatus* const told = rank_status()) {
    told->begin_phase(text);
  }
  if (phase_observer) {
    phase_observer(text);
  }
}

void observe_phases(std::function<void(std::string_view)> observer) {
  phase_observer = std::move(observer);
}

}  // namespace lockstep
