#include "checkpoint/page_sum.h"

#include "base/byte_loops.h"
#include "base/format.h"

namespace lockstep::checkpoint {

void PageSum::add(std::span<const std::byte> bytes, uint64_t first) {
  byte_loops().add_pages(bytes.data(), bytes.size(), kPageBytes, first, high, low);
}

std::string PageSum::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

}  // namespace lockstep::checkpoint
