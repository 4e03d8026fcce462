// Memory accesses by address, and detection of races between streams.
#include "null_gpu/order.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include <cxxabi.h>
#include <dlfcn.h>

#include "null_gpu/report.h"
#include "null_gpu/torch/watch.h"

namespace null_gpu {
namespace {

struct Record {
  int stream = -1;
  uint64_t time = 0;  // clock of the stream
  const char* what = "";
};
struct Cell {
  uintptr_t end = 0;
  Record write{};
  std::vector<Record> reads{};  // the last read of each stream
};

struct Order {
  std::map<uintptr_t, Cell> cells;     // by start address; cells do not overlap
  std::map<uintptr_t, size_t> blocks;  // blocks of libtorch's allocator
  Clock waited;
  std::set<std::string> names, told;
};
Order& order() {
  static Order* const order = new Order;
  return *order;
}

/// Work that this thread knows to be complete.
Clock& known() {
  thread_local Clock known;
  return known;
}

/// A libtorch operation that this thread is executing.
struct Frame {
  const char* name = "";
  std::vector<Access> inputs;
  std::vector<Stream*> used;
};
std::vector<Frame>& frames() {
  thread_local std::vector<Frame> frames;
  return frames;
}

bool is_before(const Record& record, const Clock& clock) {
  const auto stream = static_cast<size_t>(record.stream);
  return record.stream < 0 || (stream < clock.size() && clock[stream] >= record.time);
}

std::string stream_name(int number) {
  return "stream " + std::to_string(number);
}

void tell(const std::string& text) {
  if (order().told.insert(text).second) {
    refused(text);
  }
}

/// Splits the cell that contains the address, if any.
void split_at(uintptr_t address) {
  auto& cells = order().cells;
  auto next = cells.upper_bound(address);
  if (next == cells.begin()) {
    return;
  }
  auto& [begin, cell] = *std::prev(next);
  if (begin < address && address < cell.end) {
    Cell second = cell;
    cell.end = address;
    cells.emplace_hint(next, address, std::move(second));
  }
}

void check(const Stream& stream, const Record& before, const char* what, bool reads, bool wrote) {
  if (before.stream == stream.number || is_before(before, stream.clock)) {
    return;
  }
  tell(
      std::string(reads ? "read" : "written") + " before wait: " + what + " on " +
      stream_name(stream.number) + (reads ? " reads" : " writes") + " what " + before.what +
      " on " + stream_name(before.stream) + (wrote ? " writes" : " reads") +
      ", and does not wait for it");
}

void add_read(Cell& cell, const Record& record) {
  for (Record& read : cell.reads) {
    if (read.stream == record.stream) {
      read = record;
      return;
    }
  }
  cell.reads.push_back(record);
}

void read(const Stream& stream, uintptr_t begin, uintptr_t end, const Record& record) {
  auto& cells = order().cells;
  for (uintptr_t at = begin; at < end;) {
    auto cell = cells.lower_bound(at);
    if (cell == cells.end() || cell->first > at) {  // not accessed before
      const uintptr_t until = cell == cells.end() ? end : std::min(end, cell->first);
      cell = cells.emplace_hint(cell, at, Cell{until});
    }
    check(stream, cell->second.write, record.what, true, true);
    add_read(cell->second, record);
    at = cell->second.end;
  }
}

void write(const Stream& stream, uintptr_t begin, uintptr_t end, const Record& record) {
  auto& cells = order().cells;
  const auto first = cells.lower_bound(begin), last = cells.lower_bound(end);
  for (auto cell = first; cell != last; ++cell) {
    check(stream, cell->second.write, record.what, false, true);
    for (const Record& each : cell->second.reads) {
      check(stream, each, record.what, false, false);
    }
  }
  cells.erase(first, last);
  cells[begin] = {end, record};
}

bool is_compared() {
  static const bool is_compared = setting("ORDER", "1") != "0";
  return is_compared;
}

void touch_range(Stream& stream, const Access& access, const char* what) {
  // Premature writes to pinned memory are detected by its copy (copies.cpp).
  const Range* const range = range_of(reinterpret_cast<const void*>(access.begin));
  if (!is_compared() || access.bytes == 0 || range == nullptr || range->kind == Kind::kPinned) {
    return;
  }
  const uintptr_t end = access.begin + access.bytes;
  split_at(access.begin);
  split_at(end);
  const auto number = static_cast<size_t>(stream.number);
  const Record record{stream.number, stream.clock[number], what};
  count_moved(what, static_cast<int64_t>(access.bytes));
  (access.is_write ? write : read)(stream, access.begin, end, record);
}

/// Returns the types of a function's parameters from its demangled name.
std::vector<std::string> parameters_of(const std::string& name) {
  std::vector<std::string> types;
  const size_t close = name.rfind(')');
  if (close == std::string::npos) {
    return types;
  }
  int depth = 0;
  std::string type;
  for (size_t i = close;
       i-- > 0;) {  // backwards, because the parameter list is the last one in parentheses
    const char c = name[i];
    depth += c == ')' || c == '>' ? 1 : c == '(' || c == '<' ? -1 : 0;
    if (depth < 0 || (depth == 0 && c == ',')) {
      types.insert(types.begin(), type);
      type.clear();
      if (depth < 0) {
        return types;
      }
    } else {
      type.insert(type.begin(), c);
    }
  }
  return {};
}

/// Returns the bytes up to the end of the allocator's block, the most that a kernel may access.
int64_t bytes_behind(const void* memory) {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  const auto next = order().blocks.upper_bound(at);
  if (next == order().blocks.begin()) {
    return 0;
  }
  const auto& [begin, bytes] = *std::prev(next);
  return begin + bytes > at ? static_cast<int64_t>(begin + bytes - at) : 0;
}

enum class Pointer { kNone, kRead, kWritten };
const std::vector<Pointer>& pointers_of(const char* kernel) {
  static auto* const known = new std::map<const char*, std::vector<Pointer>>;
  const auto [found, is_new] = known->try_emplace(kernel);
  if (is_new) {
    int status = 0;
    char* const text = abi::__cxa_demangle(kernel, nullptr, nullptr, &status);
    for (const std::string& type : parameters_of(status == 0 ? text : "")) {
      const bool is_const = type.size() > 6 && type.compare(type.size() - 6, 6, "const*") == 0;
      found->second.push_back(
          type.empty() || type.back() != '*' ? Pointer::kNone
          : is_const                         ? Pointer::kRead
                                             : Pointer::kWritten);
    }
    std::free(text);
  }
  return found->second;
}

}  // namespace

void merge(Clock& into, const Clock& from) {
  into.resize(std::max(into.size(), from.size()));
  for (size_t i = 0; i < from.size(); ++i) {
    into[i] = std::max(into[i], from[i]);
  }
}

void host_was_told(const Clock& clock) {
  merge(known(), clock);
}

void host_has_waited(const Clock& clock) {
  merge(order().waited, clock);
}

void order_work(Stream& stream) {
  if (stream.capture != nullptr) {
    return;  // a capture executes nothing
  }
  merge(stream.clock, order().waited);
  merge(stream.clock, known());
  const auto number = static_cast<size_t>(stream.number);
  stream.clock.resize(std::max(stream.clock.size(), number + 1));
  ++stream.clock[number];
  if (frames().empty()) {
    return;
  }
  Frame& frame = frames().back();
  if (std::find(frame.used.begin(), frame.used.end(), &stream) == frame.used.end()) {
    frame.used.push_back(&stream);
    for (const Access& input : frame.inputs) {
      touch_range(stream, input, frame.name);
    }
  }
}

void touch(Stream& stream, const void* begin, size_t bytes, bool is_write, const char* what) {
  if (stream.capture == nullptr) {
    touch_range(stream, {reinterpret_cast<uintptr_t>(begin), bytes, is_write}, what);
  }
}

void touch_arguments(Stream& stream, const char* kernel, void** arguments) {
  // Accesses of ATen operations are reported by the operation itself. Nodes of autograd are
  // operations too, but report nothing; their kernels are Lockstep's.
  const bool is_told = !frames().empty() && std::strncmp(frames().back().name, "aten::", 6) == 0;
  if (stream.capture != nullptr || arguments == nullptr || is_told) {
    return;
  }
  const std::vector<Pointer>& pointers = pointers_of(kernel);
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (pointers[i] != Pointer::kNone) {
      const void* const memory = *static_cast<void**>(arguments[i]);
      touch(stream, memory, 1, pointers[i] == Pointer::kWritten, kernel);
      count_moved(kernel, bytes_behind(memory));
    }
  }
}

void forget_order(const void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  split_at(begin);
  split_at(begin + bytes);
  auto& cells = order().cells;
  cells.erase(cells.lower_bound(begin), cells.lower_bound(begin + bytes));
}

void watch_libtorch() {
  static const bool is_watched = [] {
    Dl_info own;
    if (!is_compared() || ::dladdr(reinterpret_cast<void*>(&watch_libtorch), &own) == 0) {
      return false;
    }
    const std::string file = own.dli_fname;
    const std::string path = file.substr(0, file.rfind('/') + 1) + "torch/libwatch.so";
    return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
  }();
  static_cast<void>(is_watched);
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

void null_gpu_begin_operation(const char* name, const Access* inputs, size_t count) {
  const std::unique_lock lock(mutex());
  frames().push_back({order().names.insert(name).first->c_str(), {inputs, inputs + count}, {}});
}

void null_gpu_end_operation(const Access* outputs, size_t count) {
  const std::unique_lock lock(mutex());
  if (frames().empty()) {
    return;  // it began before the watch library was loaded
  }
  const Frame frame = std::move(frames().back());
  frames().pop_back();
  for (Stream* const stream : frame.used) {
    for (size_t i = 0; i < count; ++i) {
      touch_range(*stream, outputs[i], frame.name);
    }
  }
}

void null_gpu_gave(int device, const void* memory, size_t bytes, cudaStream_t handle) {
  const std::unique_lock lock(mutex());
  order().blocks[reinterpret_cast<uintptr_t>(memory)] = bytes;
  Stream& stream = handle == nullptr ? own_stream(device) : stream_of(handle);
  Clock clock = stream.clock;
  merge(clock, order().waited);
  merge(clock, known());
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  split_at(begin);
  split_at(begin + bytes);
  auto& cells = order().cells;
  for (auto cell = cells.lower_bound(begin); cell != cells.end() && cell->first < begin + bytes;
       ++cell) {
    std::vector<Record> records = cell->second.reads;
    records.push_back(cell->second.write);
    for (const Record& record : records) {
      if (record.stream != stream.number && !is_before(record, clock)) {
        tell(
            std::string("freed before done: what ") + record.what + " uses on " +
            stream_name(record.stream) + " was freed, and reused for " +
            stream_name(stream.number));
      }
    }
  }
  forget_order(memory, bytes);
}

void null_gpu_took(const void* memory, size_t bytes) {
  const std::unique_lock lock(mutex());
  // Work that this thread knows to be complete needs no check when the memory is reused.
  Clock clock = order().waited;
  merge(clock, known());
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  auto& cells = order().cells;
  for (auto cell = cells.lower_bound(begin); cell != cells.end() && cell->first < begin + bytes;) {
    const auto& reads = cell->second.reads;
    const bool is_done = is_before(cell->second.write, clock) &&
                         std::all_of(reads.begin(), reads.end(), [&](const Record& each) {
                           return is_before(each, clock);
                         });
    cell = is_done ? cells.erase(cell) : std::next(cell);
  }
}

}  // extern "C"
