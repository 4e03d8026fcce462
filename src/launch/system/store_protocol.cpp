// Implements the server side of c10d's TCPStore protocol.
#include "launch/system/store_protocol.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace lockstep::launch {
namespace {

constexpr uint32_t kStoreGreeting = 0x3C85F7CE;
constexpr uint8_t kStopWaiting = 0, kWaitCancelled = 1;
constexpr uint8_t kReady = 0, kNotReady = 1;
constexpr uint64_t kEntry = 128;  // overhead of a key in bytes

template <class T>
void put(std::string& answer, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof value);  // the protocol is in the machine's own byte order
  answer.append(bytes, sizeof bytes);
}

void put_text(std::string& answer, std::string_view text) {
  put<uint64_t>(answer, text.size());
  answer.append(text);
}

// The entry is stored twice: in the list of the client and in that of the key.
uint64_t cost_of_waiting(std::string_view key) {
  return 2 * (key.size() + kEntry);
}

}  // namespace

enum class StoreProtocol::Request : uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kCountKeys,
  kDelete,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLength,
  kListKeys,
};

// Reads the fields of a request. If a field is incomplete or too large, all later fields are empty.
class StoreProtocol::Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value{};
    if (state_ == Taken::kWhole && bytes_.size() - at_ < sizeof value) {
      state_ = Taken::kMore;
    }
    if (state_ == Taken::kWhole) {
      std::memcpy(&value, bytes_.data() + at_, sizeof value);
      at_ += sizeof value;
    }
    return value;
  }

  std::string_view text(uint64_t longest) {
    const auto size = number<uint64_t>();
    if (state_ == Taken::kWhole && size > longest) {
      state_ = Taken::kWrong;
    } else if (state_ == Taken::kWhole && bytes_.size() - at_ < size) {
      state_ = Taken::kMore;
    }
    if (state_ != Taken::kWhole) {
      return {};
    }
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  std::string key() { return std::string(text(kLongestKey)); }
  std::string_view value() { return text(kLongestValue); }

  /// Returns the number of keys that follow. Fails if it exceeds the limit.
  uint64_t count() {
    const auto count = number<uint64_t>();
    if (state_ == Taken::kWhole && count > kMostKeys) {
      state_ = Taken::kWrong;
    }
    return state_ == Taken::kWhole ? count : 0;
  }

  // Returns views, because an incomplete request is parsed again whenever more bytes arrive.
  std::vector<std::string_view> keys() {
    std::vector<std::string_view> result;
    const uint64_t wanted = count();
    for (uint64_t i = 0; i < wanted && state_ == Taken::kWhole; ++i) {
      result.push_back(text(kLongestKey));
    }
    return result;
  }

  Taken state() const { return state_; }
  bool whole() const { return state_ == Taken::kWhole; }
  bool at_end() const { return at_ == bytes_.size(); }
  size_t position() const { return at_; }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  Taken state_ = Taken::kWhole;
};

std::string StoreProtocol::greeting_and_ping(uint32_t number) {
  std::string text;
  put(text, Request::kValidate);
  put(text, kStoreGreeting);
  put(text, Request::kPing);
  put(text, number);
  return text;
}

StoreProtocol::Progress StoreProtocol::take(Client client, std::string_view bytes) {
  State& state = clients_[client];
  if (!has_room(bytes.size())) {
    forget(client);
    return Progress::kRefused;
  }
  state.pending.append(bytes);
  held_ += bytes.size();
  must_read_ = false;
  Progress progress = Progress::kNeedsBytes;
  size_t done = 0;
  for (size_t requests = 0; done < state.pending.size(); ++requests) {
    if (must_read_ || requests == kMostRequests || done >= kMostBytes) {
      progress = Progress::kHasRequests;
      break;
    }
    Reader reader(std::string_view(state.pending).substr(done));
    const Taken taken = take_request(client, state, reader);
    if (taken == Taken::kWrong) {
      forget(client);
      return Progress::kRefused;
    }
    if (taken == Taken::kMore) {
      break;
    }
    done += reader.position();
  }
  state.pending.erase(0, done);
  held_ -= done;
  return progress;
}

void StoreProtocol::answer(Client client, std::string bytes) {
  must_read_ = !send_(client, std::move(bytes)) || must_read_;
}

void StoreProtocol::forget(Client client) {
  const auto found = clients_.find(client);
  if (found != clients_.end()) {
    stop_waiting(client, found->second);
    held_ -= found->second.pending.size();
    clients_.erase(found);
  }
}

StoreProtocol::Taken StoreProtocol::take_request(Client client, State& state, Reader& reader) {
  const auto request = static_cast<Request>(reader.number<uint8_t>());
  if (!state.greeted) {
    const auto number = reader.number<uint32_t>();
    const bool right =
        request == Request::kValidate && (!reader.whole() || number == kStoreGreeting);
    state.greeted = right && reader.whole();
    return right ? reader.state() : Taken::kWrong;
  }
  switch (request) {
    case Request::kSet:
    case Request::kAppend:
    case Request::kMultiSet:
      return write(request, reader);
    case Request::kWait:
      return wait(client, state, reader);
    case Request::kCancelWait:
      stop_waiting(client, state);
      answer(client, std::string(1, char{kWaitCancelled}));
      return Taken::kWhole;
    case Request::kQueuePush:
    case Request::kQueuePop:
    case Request::kQueueLength:
      return use_queue(client, request, reader);
    default:
      return read(client, request, reader);
  }
}

StoreProtocol::Taken StoreProtocol::write(Request request, Reader& reader) {
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  const uint64_t count = request == Request::kMultiSet ? reader.count() : 1;
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < count && reader.whole(); ++i) {
    const std::string_view key = reader.text(kLongestKey), value = reader.value();
    pairs.emplace_back(key, value);
    bytes += key.size() + value.size() + kEntry;
  }
  if (!reader.whole()) {
    return reader.state();
  }
  if (!has_room(bytes)) {
    return Taken::kWrong;
  }
  for (const auto& [name, value] : pairs) {
    const std::string key(name);
    if (request == Request::kAppend) {
      value_at(key).append(value);
      held_ += value.size();
      announce(key, clients_.size());
    } else {
      set(key, std::string(value));
    }
  }
  return Taken::kWhole;
}

StoreProtocol::Taken StoreProtocol::read(Client client, Request request, Reader& reader) {
  std::string said;
  const auto value_of = [&](const std::string& key) -> std::string_view {
    const auto found = values_.find(key);
    return found == values_.end() ? std::string_view() : std::string_view(found->second);
  };
  if (request == Request::kPing) {
    put(said, reader.number<uint32_t>());
  } else if (request == Request::kGet) {
    put_text(said, value_of(reader.key()));
  } else if (request == Request::kMultiGet) {
    for (const std::string_view key : reader.keys()) {
      const std::string_view value = value_of(std::string(key));
      if (reader.whole() &&
          value.size() > most_held_ - std::min<uint64_t>(most_held_, said.size())) {
        return Taken::kWrong;
      }
      put_text(said, value);
    }
  } else if (request == Request::kCheck) {
    const std::vector<std::string_view> keys = reader.keys();
    const bool all = std::all_of(
        keys.begin(), keys.end(), [&](std::string_view key) { return present(std::string(key)); });
    put(said, all ? kReady : kNotReady);
  } else if (request == Request::kCountKeys) {
    put(said, static_cast<int64_t>(values_.size()));
  } else if (request == Request::kListKeys) {
    put(said, static_cast<int64_t>(values_.size()));
    for (const auto& [key, value] : values_) {
      put_text(said, key);
    }
  } else if (request == Request::kAdd) {
    const std::string key = reader.key();
    const auto amount = reader.number<int64_t>();
    if (reader.whole() && !has_room(key.size() + kEntry)) {
      return Taken::kWrong;
    }
    if (reader.whole()) {
      put(said, add(key, amount));
    }
  } else if (request == Request::kDelete) {
    const std::string key = reader.key();
    if (reader.whole()) {
      const auto found = values_.find(key);
      const bool there = found != values_.end();
      if (there) {
        held_ -= key.size() + found->second.size() + kEntry;
        values_.erase(found);
      }
      put(said, static_cast<int64_t>(there));
    }
  } else if (request == Request::kCompareSet) {
    const std::string key = reader.key();
    const std::string_view expected = reader.value(), value = reader.value();
    if (reader.whole() && !has_room(key.size() + value.size() + kEntry)) {
      return Taken::kWrong;
    }
    if (reader.whole()) {
      put_text(said, compare_set(key, expected, value));
    }
  } else {
    return Taken::kWrong;
  }
  if (reader.whole()) {
    answer(client, std::move(said));
  }
  return reader.state();
}

StoreProtocol::Taken StoreProtocol::use_queue(Client client, Request request, Reader& reader) {
  const std::string key = reader.key();
  const std::string_view value =
      request == Request::kQueuePush ? reader.value() : std::string_view();
  if (!reader.whole()) {
    return reader.state();
  }
  const uint64_t cost = key.size() + value.size() + kEntry;
  if (request == Request::kQueuePush && !has_room(cost)) {
    return Taken::kWrong;
  }
  std::deque<std::string>& queue = queues_[key];
  if (request == Request::kQueuePush) {
    queue.emplace_back(value);
    held_ += cost;
    announce(key, 1);
    return Taken::kWhole;
  }
  std::string said;
  put(said, static_cast<int64_t>(queue.size()));
  if (request == Request::kQueuePop && !queue.empty()) {
    put_text(said, queue.front());
    held_ -= key.size() + queue.front().size() + kEntry;
    queue.pop_front();
  }
  if (queue.empty()) {
    queues_.erase(key);
  }
  answer(client, std::move(said));
  return Taken::kWhole;
}

StoreProtocol::Taken StoreProtocol::wait(Client client, State& state, Reader& reader) {
  const std::vector<std::string_view> keys = reader.keys();
  if (!reader.whole()) {
    return reader.state();
  }
  stop_waiting(client, state);
  uint64_t bytes = 0;
  for (const std::string_view key : keys) {
    bytes += cost_of_waiting(key);
  }
  if (!has_room(bytes)) {
    return Taken::kWrong;
  }
  for (const std::string_view name : keys) {
    const std::string key(name);
    if (!present(key) && state.missing.insert(key).second) {
      waiting_[key].push_back(client);
      held_ += cost_of_waiting(key);
    }
  }
  if (state.missing.empty()) {
    answer(client, std::string(1, char{kStopWaiting}));
  }
  return Taken::kWhole;
}

void StoreProtocol::stop_waiting(Client client, State& state) {
  for (const std::string& key : state.missing) {
    const auto found = waiting_.find(key);
    std::erase(found->second, client);
    held_ -= cost_of_waiting(key);
    if (found->second.empty()) {
      waiting_.erase(found);
    }
  }
  state.missing.clear();
}

void StoreProtocol::announce(const std::string& key, size_t most) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) {
    return;
  }
  for (; most > 0 && !found->second.empty(); --most) {
    const Client client = found->second.front();
    found->second.pop_front();
    State& state = clients_.at(client);
    state.missing.erase(key);
    held_ -= cost_of_waiting(key);
    if (state.missing.empty()) {
      send_(client, std::string(1, char{kStopWaiting}));
    }
  }
  if (found->second.empty()) {
    waiting_.erase(found);
  }
}

bool StoreProtocol::present(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

std::string& StoreProtocol::value_at(const std::string& key) {
  const auto [at, is_new] = values_.try_emplace(key);
  held_ += is_new ? key.size() + kEntry : 0;
  return at->second;
}

void StoreProtocol::set(const std::string& key, std::string value) {
  std::string& kept = value_at(key);
  held_ += value.size() - kept.size();
  kept = std::move(value);
  announce(key, clients_.size());
}

std::string StoreProtocol::compare_set(
    const std::string& key, std::string_view expected, std::string_view value) {
  const auto found = values_.find(key);
  if (found == values_.end() && !expected.empty()) {
    return std::string(expected);  // as c10d answers for a missing key
  }
  if (found == values_.end() || found->second == expected) {
    set(key, std::string(value));
  }
  return values_.at(key);
}

int64_t StoreProtocol::add(const std::string& key, int64_t amount) {
  const auto found = values_.find(key);
  int64_t sum = 0;
  if (found != values_.end()) {
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), sum);
  }
  // Overflow wraps around, as for unsigned numbers.
  sum = static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(amount));
  set(key, std::to_string(sum));
  return sum;
}

}  // namespace lockstep::launch
