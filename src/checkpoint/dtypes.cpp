// Converts between element types of safetensors and libtorch.
#include <array>

#include "base/format.h"
#include "checkpoint/safetensors.h"

namespace lockstep::checkpoint {
namespace {

struct DtypeRow {
  std::string_view name;
  int bits;
  std::optional<at::ScalarType> type;
};

// In the order of FileDtype.
const std::array<DtypeRow, 22> kRows{{
    {"BOOL", 8, at::kBool},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, at::kByte},
    {"I8", 8, at::kChar},
    {"F8_E5M2", 8, at::kFloat8_e5m2},
    {"F8_E4M3", 8, at::kFloat8_e4m3fn},
    {"F8_E8M0", 8, at::kFloat8_e8m0fnu},
    {"F8_E4M3FNUZ", 8, at::kFloat8_e4m3fnuz},
    {"F8_E5M2FNUZ", 8, at::kFloat8_e5m2fnuz},
    {"I16", 16, at::kShort},
    {"U16", 16, at::kUInt16},
    {"F16", 16, at::kHalf},
    {"BF16", 16, at::kBFloat16},
    {"I32", 32, at::kInt},
    {"U32", 32, at::kUInt32},
    {"F32", 32, at::kFloat},
    {"C64", 64, at::kComplexFloat},
    {"F64", 64, at::kDouble},
    {"I64", 64, at::kLong},
    {"U64", 64, at::kUInt64},
}};

const DtypeRow& row(FileDtype dtype) {
  return kRows.at(static_cast<size_t>(dtype));
}

}  // namespace

std::string_view dtype_name(FileDtype dtype) {
  return row(dtype).name;
}

std::optional<FileDtype> dtype_of_name(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) {
      return static_cast<FileDtype>(i);
    }
  }
  return std::nullopt;
}

int dtype_bits(FileDtype dtype) {
  return row(dtype).bits;
}

std::optional<at::ScalarType> scalar_type(FileDtype dtype) {
  return row(dtype).type;
}

FileDtype file_dtype(at::ScalarType type) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].type == type) {
      return static_cast<FileDtype>(i);
    }
  }
  throw Error(
      ErrorKind::kInternal,
      fmt::format("safetensors files have no element type for {}", c10::toString(type)));
}

}  // namespace lockstep::checkpoint
