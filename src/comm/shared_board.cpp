// Shared-memory board on which the ranks of a node publish their operations.
#include "comm/shared_board.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/format.h"

namespace lockstep::comm {
namespace {

constexpr int kOffers = 256;             // maximum number of offers per rank; further operations
                                         // wait
constexpr uint64_t kProbe = 0x4c6f636b;  // word that peers read to test whether they have access

/// Returns an identifier of the node and its PID and user namespaces. Ranks with equal identifiers
/// can address each other's processes by PID.
std::string machine_identity() {
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  std::error_code none;
  for (const char* space : {"pid", "user"}) {
    const std::filesystem::path link = fmt::format("/proc/self/ns/{}", space);
    text += fmt::format(" {}", std::filesystem::read_symlink(link, none).string());
  }
  return text;
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Publishes this rank's string under a key and returns the strings of all ranks.
std::vector<std::string> tell_all(
    const Store& store, const std::string& key, int rank, int size, const std::string& mine) {
  store->set(fmt::format("board/{}/{}", key, rank), bytes_of(mine));
  std::vector<std::string> all;
  for (int r = 0; r < size; ++r) {
    const std::vector<uint8_t> said = store->get(fmt::format("board/{}/{}", key, r));
    all.emplace_back(said.begin(), said.end());
  }
  return all;
}

bool all_agree(const Store& store, const std::string& key, int rank, int size, bool mine) {
  for (const std::string& said : tell_all(store, key, rank, size, mine ? "yes" : "no")) {
    if (said != "yes") {
      return false;
    }
  }
  return true;
}

/// Parses a number that another process sent. Returns nullopt if the string contains anything else.
std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

/// Registry of the ranks in this process. A rank uses a random token to prove that it runs in this
/// process, because its tensors are read through raw pointers, and pointers from another process
/// must not be dereferenced.
class RanksHere {
 public:
  static std::string enter(int rank) {
    std::array<uint64_t, 2> drawn{};
    if (::getrandom(drawn.data(), sizeof drawn, 0) != sizeof drawn) {
      return "none";
    }
    const std::string word = fmt::format("{:016x}{:016x}", drawn[0], drawn[1]);
    const std::lock_guard lock(mutex());
    words()[word] = rank;
    return word;
  }
  static bool has(const std::string& word, int rank) {
    const std::lock_guard lock(mutex());
    const auto found = words().find(word);
    return found != words().end() && found->second == rank;
  }

 private:
  static std::mutex& mutex() {
    static auto* const one = new std::mutex;  // never destroyed, because threads may still join at
                                              // exit
    return *one;
  }
  static std::map<std::string, int>& words() {
    static auto* const all = new std::map<std::string, int>;
    return *all;
  }
};

/// Creates shared memory that no process can shrink. Otherwise an access beyond the end of a shrunk
/// file would raise SIGBUS.
int make_memory(size_t bytes) {
  const int descriptor = ::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor >= 0 &&
      (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0 ||
       ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

/// Opens the shared memory of another process. Returns -1 if its descriptor does not refer to such
/// memory.
int open_memory(int process, const std::string& said, size_t bytes) {
  const std::optional<int> number = number_in(said);
  if (!number) {
    return -1;
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", process, *number);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  struct stat status{};
  const bool sound = descriptor >= 0 && ::fstat(descriptor, &status) == 0 &&
                     S_ISREG(status.st_mode) && static_cast<size_t>(status.st_size) == bytes &&
                     (::fcntl(descriptor, F_GET_SEALS) & F_SEAL_SHRINK) != 0 &&
                     ::fcntl(descriptor, F_GET_SEALS) >= 0;
  if (descriptor >= 0 && !sound) {
    ::close(descriptor);
  }
  return sound ? descriptor : -1;
}

/// Maps the memory of the descriptor once for all rank threads of this process, so that
/// ThreadSanitizer, which tracks addresses, recognizes their synchronization. Returns null on
/// failure.
std::shared_ptr<void> mapped_once(int descriptor, size_t bytes) {
  using Key = std::pair<dev_t, ino_t>;
  static auto* const mutex = new std::mutex;  // never destroyed, for the same reason as in
                                              // RanksHere
  static auto* const all = new std::map<Key, std::weak_ptr<void>>;
  struct stat status{};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    return nullptr;
  }
  const Key key{status.st_dev, status.st_ino};
  const std::scoped_lock lock(*mutex);
  if (const auto found = all->find(key); found != all->end()) {
    if (auto memory = found->second.lock()) {
      return memory;
    }
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  std::erase_if(*all, [](const auto& each) { return each.second.expired(); });
  std::shared_ptr<void> made(memory, [bytes](void* at) { ::munmap(at, bytes); });
  (*all)[key] = made;
  return made;
}

long futex(
    const std::atomic<uint32_t>& word,
    int operation,
    uint32_t value,
    const timespec* most,
    uint32_t bits) {
  return ::syscall(SYS_futex, &word, operation, value, most, nullptr, bits);
}

bool read_process(int process, const void* from, void* into, size_t bytes) {
  auto* to = static_cast<char*>(into);
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const iovec local{to, bytes}, remote{const_cast<char*>(at), bytes};
    const ssize_t got = ::process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      return false;
    }
    to += got;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

/// Data of one rank, on its own cache lines.
struct alignas(128) SharedBoard::Place {
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> asleep;    // bits of Sleeper: threads that are asleep
  std::atomic<uint32_t> attended;  // number of waiting threads
  std::atomic<uint32_t> left;
  std::atomic<int> waits_for;     // 2 * (world rank + 1), plus 1 if the wait failed; 0: none
  std::atomic<uint32_t> readers;  // number of peers that are reading this rank's memory through
                                  // pointers
  std::atomic<uint32_t> used;     // offers[used] and all later slots have never been used
  std::atomic<const uint64_t*> probe;
  std::array<Offer, kOffers> offers;
};

std::unique_ptr<SharedBoard> SharedBoard::join(const Store& store, int rank, int size) {
  if (size > kMostRanks) {
    return nullptr;
  }
  const std::string identity = machine_identity(), word = RanksHere::enter(rank);
  const auto ranks =
      tell_all(store, "rank", rank, size, fmt::format("{} {} {}", ::getpid(), word, identity));
  std::unique_ptr<SharedBoard> board(new SharedBoard(rank, size));
  bool sound = true;
  for (int peer = 0; peer < size; ++peer) {
    const std::string& said = ranks[static_cast<size_t>(peer)];
    const size_t first = said.find(' '), second = said.find(' ', first + 1);
    if (second == std::string::npos || said.substr(second + 1) != identity) {
      return nullptr;
    }
    const int process = number_in(std::string_view(said).substr(0, first)).value_or(0);
    const bool is_here =
        process == ::getpid() && RanksHere::has(said.substr(first + 1, second - first - 1), peer);
    sound = sound && process > 0 && (is_here || process != ::getpid());
    board->processes_.push_back(process);
  }
  // Allows other processes of this user to read this process even if Yama restricts ptrace.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  board->bytes_ = sizeof(Place) * static_cast<size_t>(size);
  int descriptor = -1;
  if (rank == 0) {
    descriptor = make_memory(board->bytes_);
    store->set("board/memory", bytes_of(std::to_string(descriptor)));
  } else {
    const std::vector<uint8_t> said = store->get("board/memory");
    descriptor = open_memory(
        board->processes_.front(), std::string(said.begin(), said.end()), board->bytes_);
  }
  const bool mapped = sound && board->map(descriptor);
  const bool all_mapped = all_agree(store, "mapped", rank, size, mapped);
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (!all_mapped || !all_agree(store, "read", rank, size, board->can_read_peers())) {
    return nullptr;
  }
  return board;
}

bool SharedBoard::map(int descriptor) {
  memory_ = mapped_once(descriptor, bytes_);
  if (memory_ == nullptr) {
    return false;
  }
  places_ = static_cast<Place*>(memory_.get());  // the memory is zero-filled, which is the initial
                                                 // state
  static const uint64_t probe = kProbe;
  places_[rank_].probe = &probe;
  for (const int process : processes_) {
    const bool here = process == ::getpid();
    process_descriptors_.push_back(
        here ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (!here && process_descriptors_.back() < 0) {
      return false;
    }
  }
  return true;
}

bool SharedBoard::can_read_peers() const {
  for (int peer = 0; peer < size_; ++peer) {
    uint64_t word = 0;
    if (!is_here(peer) &&
        (!read_process(
             processes_[static_cast<size_t>(peer)], places_[peer].probe, &word, sizeof word) ||
         word != kProbe)) {
      return false;
    }
  }
  return true;
}

SharedBoard::~SharedBoard() {
  if (places_ != nullptr) {
    Place& mine = places_[rank_];
    mine.left = 1;
    ring_peers();
    while (mine.readers != 0) {
      std::this_thread::yield();
    }
  }
  for (const int descriptor : process_descriptors_) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }
}

Offer* SharedBoard::offer(uint64_t key, uint64_t signature, const void* address, uint64_t bytes) {
  Place& mine = places_[rank_];
  for (uint32_t i = 0; i < kOffers; ++i) {
    Offer& free = mine.offers[i];
    if (free.key.load(std::memory_order_relaxed) == 0 && !full_) {
      free.taken_by.store(0, std::memory_order_release);
      free.stage.store(0, std::memory_order_relaxed);
      free.signature = signature;
      free.order = offered_++;
      free.address = address;
      free.bytes = bytes;
      free.key.store(key, std::memory_order_release);
      if (mine.used.load(std::memory_order_relaxed) <= i) {
        mine.used.store(i + 1, std::memory_order_release);
      }
      return &free;
    }
  }
  full_ = true;
  return nullptr;
}

Offer* SharedBoard::find(int peer, uint64_t key) const {
  // Two offers may arrive during a scan, the earlier one in a slot that was already scanned and the
  // later one in a slot that was not. A second scan finds both.
  return look(peer, key) == nullptr ? nullptr : look(peer, key);
}

Offer* SharedBoard::look(int peer, uint64_t key) const {
  Place& place = places_[peer];
  const uint32_t used = place.used.load(std::memory_order_acquire);
  const uint64_t me = uint64_t{1} << rank_;
  Offer* earliest = nullptr;
  for (uint32_t i = 0; i < used; ++i) {
    Offer& offer = place.offers[i];
    // Checks the key again, because the slot may have been reused in between.
    if (offer.key.load(std::memory_order_acquire) == key &&
        (offer.taken_by.load(std::memory_order_acquire) & me) == 0 &&
        offer.key.load(std::memory_order_acquire) == key &&
        (earliest == nullptr || offer.order < earliest->order)) {
      earliest = &offer;
    }
  }
  return earliest;
}

void SharedBoard::take(int peer, Offer& offer) {
  offer.taken_by.fetch_or(uint64_t{1} << rank_, std::memory_order_acq_rel);
  ring(peer);
}

bool SharedBoard::is_here(int peer) const {
  return process_descriptors_[static_cast<size_t>(peer)] < 0;
}

void SharedBoard::guard(int peer) const {
  Place& place = places_[peer];
  place.readers.fetch_add(1);
  if (place.left.load() != 0) {
    place.readers.fetch_sub(1);
    throw PeerLeft(peer);
  }
}

void SharedBoard::release(int peer) const {
  places_[peer].readers.fetch_sub(1);
}

void SharedBoard::read(int peer, const void* from, void* into, size_t bytes) const {
  if (is_here(peer)) {
    guard(peer);
    std::memcpy(into, from, bytes);
    release(peer);
    return;
  }
  const int process = processes_[static_cast<size_t>(peer)];
  const bool could = read_process(process, from, into, bytes);
  const int why = errno;
  // A peer that is leaving may have freed the memory that was read.
  if (places_[peer].left.load() != 0 || (!could && why == ESRCH)) {
    throw PeerLeft(peer);
  }
  if (!could) {
    throw std::runtime_error(fmt::format(
        "cannot read the memory of rank {} of the group (process {}): {}",
        peer,
        process,
        std::generic_category().message(why)));
  }
}

uint32_t SharedBoard::bell() const {
  return places_[rank_].bell.load();
}

void SharedBoard::ring(int rank) const {
  Place& place = places_[rank];
  place.bell.fetch_add(1);
  uint32_t whom = place.asleep.load();
  if (place.attended.load() > 0) {
    whom &= static_cast<uint32_t>(Sleeper::kWaiter);
  }
  if (whom != 0) {
    futex(place.bell, FUTEX_WAKE_BITSET, INT_MAX, nullptr, whom);
  }
}

void SharedBoard::ring_peers() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) {
      ring(peer);
    }
  }
}

bool SharedBoard::sleep(uint32_t heard, Sleeper sleeper, std::chrono::milliseconds most) const {
  Place& mine = places_[rank_];
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  const int64_t nanoseconds = until.tv_nsec + most.count() % 1000 * 1'000'000;
  until.tv_sec += most.count() / 1000 + nanoseconds / 1'000'000'000;
  until.tv_nsec = nanoseconds % 1'000'000'000;
  const auto bit = static_cast<uint32_t>(sleeper);
  mine.asleep.fetch_or(bit);
  const long woken = futex(mine.bell, FUTEX_WAIT_BITSET, heard, &until, bit);
  const int why = errno;
  mine.asleep.fetch_and(~bit);
  return woken == 0 || why != ETIMEDOUT;
}

void SharedBoard::attend(bool begins) const {
  places_[rank_].attended.fetch_add(begins ? 1 : -1U);
}

bool SharedBoard::attended() const {
  return places_[rank_].attended.load() > 0;
}

void SharedBoard::set_wait(int world_rank, bool gave_up) const {
  places_[rank_].waits_for = 2 * (world_rank + 1) + (gave_up ? 1 : 0);
}

int SharedBoard::waits_for(int peer) const {
  return places_[peer].waits_for.load() / 2 - 1;
}

bool SharedBoard::gave_up(int peer) const {
  return places_[peer].waits_for.load() % 2 == 1;
}

uint64_t SharedBoard::lost(bool processes) const {
  uint64_t ranks = 0;
  for (int peer = 0; peer < size_; ++peer) {
    pollfd process{process_descriptors_[static_cast<size_t>(peer)], POLLIN, 0};
    if (places_[peer].left.load() != 0 ||
        (processes && process.fd >= 0 && ::poll(&process, 1, 0) > 0)) {
      ranks |= uint64_t{1} << peer;
    }
  }
  return ranks;
}

}  // namespace lockstep::comm
