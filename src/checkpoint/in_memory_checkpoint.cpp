// Implements in-memory checkpoints: writing, replication to the next node, and recovery.
#include "checkpoint/in_memory_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>

#include "base/error.h"
#include "base/format.h"
#include "checkpoint/on_all_ranks.h"

namespace lockstep::checkpoint {
namespace {

using json = nlohmann::json;

constexpr int64_t kPage = 4096, kAlignment = 64;
constexpr int64_t kSlots = kPersistentParts / 2;

/// Header of a state. It is also the header of a part that contains replicas.
struct Header {
  uint64_t is_whole;  // written last
  int64_t bytes;      // including this header; a multiple of a page
  int64_t description_at, description_bytes;
};

Header& header_of(std::byte* at) {
  return *reinterpret_cast<Header*>(at);
}

void set_whole(std::byte* at, bool is_whole) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_ref(header_of(at).is_whole).store(is_whole ? 1 : 0);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

int64_t round_up(int64_t bytes, int64_t to) {
  return (bytes + to - 1) / to * to;
}

/// Computes the offsets of the pieces' data.
class Layout {
 public:
  int64_t place(int64_t elements, at::ScalarType type) {
    const int64_t begin = end_;
    end_ += round_up(elements * static_cast<int64_t>(c10::elementSize(type)), kAlignment);
    return begin;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = kPage;
};

int64_t elements_of(const Piece& piece) {
  return piece.data.defined() ? piece.data.numel() : 0;
}

at::Tensor bytes_at(std::byte* at, int64_t bytes) {
  return at::from_blob(at, {bytes}, at::dtype(at::kByte));
}

/// Complete state in this rank's memory.
struct Found {
  std::shared_ptr<InMemoryPart> part;
  int64_t at = 0;  // offset in the part
  json about;      // description of the state
};

void add_state(const std::shared_ptr<InMemoryPart>& part, int64_t at, std::vector<Found>& found) {
  const Header header = header_of(part->data() + at);
  const int64_t room = part->size() - at;
  if (header.is_whole != 1 || header.bytes > room || header.description_at < kPage ||
      header.description_bytes < 0 || header.description_at > header.bytes ||
      header.description_bytes > header.bytes - header.description_at) {
    return;
  }
  const char* const text = reinterpret_cast<const char*>(part->data() + at + header.description_at);
  json about = json::parse(text, text + header.description_bytes, nullptr, false);
  if (about.is_object()) {
    found.push_back({part, at, std::move(about)});
  }
}

/// Returns the size of a written part, according to its header.
int64_t written_bytes(int memory, int index) {
  InMemoryPart part(memory, index);
  part.reserve(kPage);
  const Header& header = header_of(part.data());
  const bool is_there =
      header.is_whole == 1 && header.bytes >= kPage && header.bytes <= kept_bytes(memory);
  return is_there ? header.bytes : 0;
}

std::vector<Found> states_in(int memory) {
  std::vector<Found> found;
  for (int index = 0; memory >= 0 && index < kPersistentParts; ++index) {
    const int64_t bytes = written_bytes(memory, index);
    if (bytes == 0) {
      continue;
    }
    const auto part = std::make_shared<InMemoryPart>(memory, index);
    part->reserve(bytes);
    if (index < kSlots) {
      add_state(part, 0, found);
      continue;
    }
    for (int64_t at = kPage; at + kPage <= bytes;) {
      add_state(part, at, found);
      const int64_t step = header_of(part->data() + at).bytes;
      at = step < kPage || step > bytes - at ? bytes : at + step;
    }
  }
  return found;
}

std::vector<Piece> pieces_of(const Found& found) {
  const int64_t end = header_of(found.part->data() + found.at).description_at;
  Layout layout;
  return parse_pieces(
      found.about.at("pieces").get<std::string>(), [&](int64_t elements, at::ScalarType type) {
        const int64_t begin = layout.place(elements, type);
        if (elements < 0 || layout.end() > end) {
          throw Error(
              ErrorKind::kCheckpoint, "the in-memory checkpoint is shorter than its description");
        }
        return at::from_blob(
            found.part->data() + found.at + begin,
            {elements},
            [part = found.part](void*) {},
            at::dtype(type));
      });
}

/// Term, round, step and number of ranks of a state. The newest state has the largest key.
using StateKey = std::tuple<int, int, int64_t, int>;

}  // namespace

InMemoryPart::InMemoryPart(InMemoryPart&& other) noexcept
    : memory_(other.memory_),
      index_(other.index_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      pin_(std::move(other.pin_)) {}

InMemoryPart& InMemoryPart::operator=(InMemoryPart&& other) noexcept {
  unmap();
  memory_ = other.memory_;
  index_ = other.index_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  pin_ = std::move(other.pin_);
  return *this;
}

InMemoryPart::~InMemoryPart() {
  unmap();
}

void InMemoryPart::unmap() {
  if (data_ != nullptr) {
    pin_.reset();
    ::munmap(data_, static_cast<size_t>(size_));
    data_ = nullptr;
    size_ = 0;
  }
}

void InMemoryPart::reserve(int64_t bytes) {
  if (bytes <= size_) {
    return;
  }
  unmap();
  const int64_t offset = index_ * kPersistentPartBytes;
  const bool is_there = bytes <= kPersistentPartBytes &&
                        ::fallocate(memory_, FALLOC_FL_KEEP_SIZE, offset, bytes) == 0;
  void* const at = is_there ? ::mmap(
                                  nullptr,
                                  static_cast<size_t>(bytes),
                                  PROT_READ | PROT_WRITE,
                                  MAP_SHARED,
                                  memory_,
                                  offset)
                            : MAP_FAILED;
  if (at == MAP_FAILED) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "cannot allocate {} bytes for the in-memory checkpoint: {}",
            bytes,
            std::strerror(errno)),
        "set checkpoint.in_memory_replicas=0");
  }
  data_ = static_cast<std::byte*>(at);
  size_ = bytes;
  pin_ = ops::pin_host(data_, size_);
}

InMemoryCheckpoint::InMemoryCheckpoint(
    comm::Communicator communicator, int memory, InMemoryRound round, int machine)
    : communicator_(std::move(communicator)),
      round_(std::move(round)) {
  for (int slot = 0; slot < kSlots; ++slot) {
    own_.at(static_cast<size_t>(slot)) = InMemoryPart(memory, slot);
    copies_.at(static_cast<size_t>(slot)) = InMemoryPart(memory, static_cast<int>(kSlots) + slot);
  }
  std::map<std::string, std::vector<int>> ranks_of;
  const auto names = comm::gather_strings(communicator_, fmt::format("{:09}", machine));
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    ranks_of[names[static_cast<size_t>(rank)]].push_back(rank);
  }
  for (auto& [name, ranks] : ranks_of) {
    machines_.push_back(std::move(ranks));
  }
  // Distribute the ranks of each node over those of the next node, which may have fewer or more.
  for (size_t i = 0; has_neighbours() && i < machines_.size(); ++i) {
    const std::vector<int>& next = machines_[(i + 1) % machines_.size()];
    for (size_t j = 0; j < machines_[i].size(); ++j) {
      const int from = machines_[i][j], to = next[j % next.size()];
      if (from == communicator_.rank()) {
        sends_to_ = to;
      }
      if (to == communicator_.rank()) {
        receives_from_.push_back(from);
      }
    }
  }
}

InMemoryCheckpoint::~InMemoryCheckpoint() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

void InMemoryCheckpoint::wait() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (failure_ != nullptr) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void InMemoryCheckpoint::keep(
    int64_t step, std::span<const Piece> pieces, const std::string& about) {
  wait();
  const json description{
      {"job", round_.job},
      {"term", round_.term},
      {"round", round_.number},
      {"step", step},
      {"ranks", communicator_.size()},
      {"rank", communicator_.rank()},
      {"pieces", describe_pieces(pieces)},
      {"about", communicator_.rank() == 0 ? about : ""}};
  const std::string text = description.dump();
  Layout layout;
  for (const Piece& piece : pieces) {
    layout.place(elements_of(piece), piece.dtype);
  }
  InMemoryPart &own = own_.at(next_), &copies = copies_.at(next_);
  next_ = (next_ + 1) % own_.size();
  const int64_t bytes = round_up(layout.end() + static_cast<int64_t>(text.size()), kPage);
  own.reserve(bytes);
  set_whole(own.data(), false);
  const at::NoGradGuard no_gradient;
  Layout places;
  for (const Piece& piece : pieces) {
    const int64_t elements = elements_of(piece), begin = places.place(elements, piece.dtype);
    if (elements > 0) {
      snapshot_.copy(
          at::from_blob(own.data() + begin, {elements}, at::dtype(piece.dtype)),
          piece.data.detach().view({-1}));
    }
  }
  std::memcpy(own.data() + layout.end(), text.data(), text.size());
  Header& header = header_of(own.data());
  header.bytes = bytes;
  header.description_at = layout.end();
  header.description_bytes = static_cast<int64_t>(text.size());
  // Decide by the device of the pieces and not by the amount of data: a rank without elements must
  // take part as well.
  const bool is_on_gpu = std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.data.defined() && piece.data.is_cuda();
  });
  if (!is_on_gpu) {
    set_whole(own.data(), true);
  }
  if (is_on_gpu || has_neighbours()) {
    thread_ = std::thread([this, &own, &copies] {
      try {
        snapshot_.finish();
        set_whole(own.data(), true);
        if (has_neighbours()) {
          send_copies(own, copies);
        }
        communicator_.barrier();  // from here on, the previous state may be overwritten
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
}

void InMemoryCheckpoint::send_copies(InMemoryPart& own, InMemoryPart& copies) {
  using Direction = comm::P2p::Direction;
  const at::Tensor size = at::full({1}, header_of(own.data()).bytes, at::kLong);
  std::vector<comm::P2p> sizes{{Direction::kSend, size, sends_to_}};
  for (const int from : receives_from_) {
    sizes.push_back({Direction::kReceive, at::zeros({1}, at::kLong), from});
  }
  communicator_.exchange(sizes).wait();
  int64_t all = kPage;
  for (size_t i = 1; i < sizes.size(); ++i) {
    all += sizes[i].tensor.item<int64_t>();
  }
  copies.reserve(all);
  set_whole(copies.data(), false);
  std::vector<comm::P2p> states{
      {Direction::kSend, bytes_at(own.data(), size.item<int64_t>()), sends_to_}};
  int64_t at = kPage;
  for (size_t i = 1; i < sizes.size(); ++i) {
    const auto bytes = sizes[i].tensor.item<int64_t>();
    states.push_back({Direction::kReceive, bytes_at(copies.data() + at, bytes), sizes[i].peer});
    at += bytes;
  }
  communicator_.exchange(states).wait();
  header_of(copies.data()).bytes = all;
  set_whole(copies.data(), true);
}

std::optional<InMemoryStep> find_in_memory_step(
    int memory, const std::string& job, comm::Communicator& communicator) {
  const std::vector<Found> here = states_in(memory);
  json said = json::array();
  for (const Found& found : here) {
    if (found.about.value("job", "") == job) {
      said.push_back(
          {found.about.value("term", 0),
           found.about.value("round", 0),
           found.about.value("step", int64_t{0}),
           found.about.value("ranks", 0),
           found.about.value("rank", -1)});
    }
  }
  // For each state: the rank that sends the data of each rank.
  std::map<StateKey, std::map<int, int>> holders;
  const auto all = comm::gather_strings(communicator, said.dump());
  for (int holder = 0; holder < communicator.size(); ++holder) {
    for (const json& state : json::parse(all[static_cast<size_t>(holder)])) {
      const StateKey key{state.at(0), state.at(1), state.at(2), state.at(3)};
      holders[key].try_emplace(state.at(4).get<int>(), holder);
    }
  }
  const auto whole = std::find_if(holders.rbegin(), holders.rend(), [](const auto& state) {
    return static_cast<int>(state.second.size()) == std::get<3>(state.first);
  });
  if (job.empty() || whole == holders.rend()) {
    return std::nullopt;
  }
  InMemoryStep kept{std::get<2>(whole->first), "", {}};
  std::string about;
  std::set<int> given;
  on_all_ranks(communicator, ErrorKind::kCheckpoint, [&] {
    for (const Found& found : here) {
      const StateKey key{
          found.about.value("term", 0),
          found.about.value("round", 0),
          found.about.value("step", int64_t{0}),
          found.about.value("ranks", 0)};
      const int rank = found.about.value("rank", -1);
      if (key != whole->first || found.about.value("job", "") != job ||
          whole->second.at(rank) != communicator.rank() || !given.insert(rank).second) {
        continue;
      }
      std::vector<Piece> pieces = pieces_of(found);
      std::move(pieces.begin(), pieces.end(), std::back_inserter(kept.pieces));
      if (rank == 0) {
        about = found.about.value("about", "");
      }
    }
  });
  for (const std::string& text : comm::gather_strings(communicator, about)) {
    kept.about += text;
  }
  return kept;
}

}  // namespace lockstep::checkpoint
