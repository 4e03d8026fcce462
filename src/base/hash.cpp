// Implements XXH3 hashes.
#include "base/hash.h"

#include <cstdint>
#include <new>

#include <xxhash.h>

#include "base/byte_loops.h"
#include "base/format.h"

namespace lockstep {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

struct Hasher::State {
  XXH3_state_t* state = XXH3_createState();
  ~State() { XXH3_freeState(state); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  if (state_->state == nullptr) {
    throw std::bad_alloc();
  }
  XXH3_128bits_reset(state_->state);
}
Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->state, bytes.data(), bytes.size());
}

void Hasher::update_field(std::string_view text) {
  const uint64_t size = text.size();
  update(std::as_bytes(std::span(&size, 1)));
  update(std::as_bytes(std::span(text)));
}

std::string Hasher::hex() const {
  return to_hex(XXH3_128bits_digest(state_->state));
}

uint64_t hash_64(std::span<const std::byte> bytes) {
  return byte_loops().hash(bytes.data(), bytes.size());
}

std::string hash_hex(std::span<const std::byte> bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}
std::string hash_hex(std::string_view text) {
  return hash_hex(std::as_bytes(std::span(text)));
}

}  // namespace lockstep
