// Implements authentication with a shared secret.
#include "launch/system/secret.h"

#include <span>

#include <sodium.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::launch {
namespace {

constexpr size_t kHexDigits = 64;

const unsigned char* as_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string hex(std::span<const uint8_t> bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back();  // removes the terminating zero byte
  return text;
}

}  // namespace

Sha256 sha256(std::string_view text) {
  Sha256 result{};
  static_assert(crypto_hash_sha256_BYTES == sizeof result);
  crypto_hash_sha256(result.data(), as_bytes(text), text.size());
  return result;
}

std::string hmac_hex(std::string_view key, std::string_view text) {
  std::array<uint8_t, crypto_auth_hmacsha256_BYTES> result{};
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, as_bytes(key), key.size());
  crypto_auth_hmacsha256_update(&state, as_bytes(text), text.size());
  crypto_auth_hmacsha256_final(&state, result.data());
  return hex(result);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_hex() {
  std::array<uint8_t, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error(ErrorKind::kEnvironment, "cannot read random bytes from the kernel");
  }
  return hex(bytes);
}

std::string LineSeal::mark(const Sha256& text) {
  return hmac_hex(key_, fmt::format("{}|{}", count_++, hex(text)));
}

std::string LineSeal::prefix(const Sha256& text) {
  return mark(text).append(" ");
}

std::string LineSeal::seal(std::string_view line) {
  return prefix(sha256(line)).append(line);
}

std::optional<std::string_view> LineSeal::open(std::string_view sealed) {
  if (sealed.size() <= kHexDigits || sealed[kHexDigits] != ' ') {
    return std::nullopt;
  }
  const std::string_view line = sealed.substr(kHexDigits + 1);
  return equal_in_constant_time(sealed.substr(0, kHexDigits), mark(sha256(line)))
             ? std::optional(line)
             : std::nullopt;
}

}  // namespace lockstep::launch
