// Minimal writer of the protobuf wire format, for trackers.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::monitor {

/// Builds a message. Fields are written in the order of the calls.
class ProtobufMessage {
 public:
  ProtobufMessage& whole(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& real(int field, double value) {
    key(field, 1);
    little_endian(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  ProtobufMessage& real32(int field, float value) {
    key(field, 5);
    little_endian(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  /// Adds a packed field of doubles.
  ProtobufMessage& reals(int field, const std::vector<double>& values) {
    ProtobufMessage packed;
    for (const double value : values) {
      packed.little_endian(std::bit_cast<uint64_t>(value), 8);
    }
    return message(field, packed);
  }
  ProtobufMessage& text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& message(int field, const ProtobufMessage& value) {
    return text(field, value.bytes_);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int type) {
    varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
  }
  void varint(uint64_t value) {
    while (value >= 0x80) {
      bytes_ += static_cast<char>(value | 0x80);
      value >>= 7;
    }
    bytes_ += static_cast<char>(value);
  }
  void little_endian(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) {
      bytes_ += static_cast<char>(value >> (8 * i));
    }
  }

  std::string bytes_;
};

}  // namespace lockstep::monitor
