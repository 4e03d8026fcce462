// The safetensors parser and encoder, including invalid and random files.
#include "checkpoint/safetensors.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/format.h"
#include "base/log.h"
#include "checkpoint/text.h"
#include "expect_error.h"
#include "mutator.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace safetensors_test {

std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "x.safetensors");
}

void expect_rejected(const std::string& file, const std::string& text) {
  expect_error(
      ErrorKind::kData, {"x.safetensors is not a safetensors file", text}, [&] { parse(file); });
}

TEST(Safetensors, WritesTheGoldenBytes) {
  const EncodedHeader encoded =
      encode_safetensors_header({{"a", FileDtype::kF32, {1, 2}}, {"b", FileDtype::kI64, {3}}});
  const std::string expected = file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},)"
      R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[24,32]}} )");
  EXPECT_EQ(encoded.bytes, expected);
  EXPECT_EQ(encoded.bytes.substr(0, 8), std::string("\x90\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(encoded.layout.data_begin, expected.size());
  EXPECT_EQ(encoded.layout.file_size, expected.size() + 32);
  const SafetensorsHeader header = parse(encoded.bytes + std::string(32, '\1'));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "b");
  EXPECT_EQ(header.tensors[1].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(Safetensors, WritesEveryTypeInTheWritersOrderAndReadsItBack) {
  std::vector<TensorEntry> tensors;
  for (int i = 0; i < 22; ++i) {
    tensors.push_back({fmt::format("t\"\n\u00e9{}", i), static_cast<FileDtype>(i), {4, i % 3}});
  }
  tensors.push_back({"scalar", FileDtype::kF32, {}});
  const EncodedHeader encoded = encode_safetensors_header(tensors, {});
  EXPECT_EQ(encoded.bytes.size() % 8, 0U);
  std::reverse(tensors.begin(), tensors.end());
  EXPECT_EQ(encode_safetensors_header(tensors, {}).bytes, encoded.bytes);
  const SafetensorsHeader header =
      parse(encoded.bytes + std::string(encoded.layout.file_size - encoded.layout.data_begin, 'x'));
  ASSERT_EQ(header.tensors.size(), 23U);
  std::map<std::string, TensorEntry> read;
  for (const TensorEntry& tensor : header.tensors) {
    read[tensor.name] = tensor;
  }
  for (const TensorEntry& tensor : encoded.layout.tensors) {
    EXPECT_EQ(read.at(tensor.name).begin, tensor.begin) << tensor.name;
    EXPECT_EQ(read.at(tensor.name).end, tensor.end);
    EXPECT_EQ(read.at(tensor.name).dtype, tensor.dtype);
    EXPECT_EQ(dtype_of_name(dtype_name(tensor.dtype)), tensor.dtype);
    if (const auto type = scalar_type(tensor.dtype)) {
      EXPECT_EQ(file_dtype(*type), tensor.dtype);
      EXPECT_EQ(c10::elementSize(*type) * 8, static_cast<size_t>(dtype_bits(tensor.dtype)));
    }
  }
  EXPECT_THROW(file_dtype(at::kComplexDouble), Error);
}

TEST(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const auto encode = [](std::vector<TensorEntry> tensors) {
    return [tensors] { encode_safetensors_header(tensors); };
  };
  const TensorEntry a{"a", FileDtype::kF32, {1}};
  expect_error(ErrorKind::kInternal, {"\"a\"", "twice"}, encode({a, a}));
  expect_error(
      ErrorKind::kInternal, {"__metadata__"}, encode({{"__metadata__", FileDtype::kF32, {1}}}));
  expect_error(ErrorKind::kInternal, {"UTF-8"}, encode({{"\xff", FileDtype::kF32, {1}}}));
  expect_error(
      ErrorKind::kInternal, {"\"b\""}, encode({{"b", FileDtype::kF32, {1L << 40, 1L << 40}}}));
  expect_error(ErrorKind::kInternal, {"\"c\""}, encode({{"c", FileDtype::kF4, {3}}}));
}

TEST(Safetensors, ReadsWhatIsLegal) {
  EXPECT_TRUE(parse(file_of("{}")).tensors.empty());
  EXPECT_TRUE(parse(file_of("{}      ")).tensors.empty());
  EXPECT_EQ(parse(file_of(R"({"__metadata__":{}})")).metadata.size(), 0U);
  const auto header = parse(file_of(
      R"({"\u0061":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("z":{"shape":[0,5],"data_offsets":[4,4],"dtype":"F64"},)"
      R"("y":{"dtype":"F4","shape":[2,3],"data_offsets":[4,7]}})",
      "1234567"));
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].elements(), 1);
  EXPECT_EQ(header.tensors[1].elements(), 0);
  EXPECT_EQ(header.tensors[2].elements(), 6);
}

TEST(Safetensors, PassesOverUnknownFieldsOfATensor) {
  set_log_level(LogLevel::kError);
  const auto header = parse(file_of(
      R"({"a":{"x":null,"y":[1.5,-2,"s"],"dtype":"U8","z":{"dtype":7,"shape":"no"},"w":true,)"
      R"("shape":[2],"v":-1e3,"data_offsets":[0,2]}})",
      "12"));
  set_log_level(LogLevel::kInfo);
  ASSERT_EQ(header.tensors.size(), 1U);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(header.tensors[0].dtype, FileDtype::kU8);
}

TEST(Safetensors, RejectsWhatBreaksARule) {
  const auto tensor = [](const std::string& fields) {
    return file_of(R"({"a":{)" + fields + "}}");
  };
  expect_rejected("", "it has only 0 bytes");
  expect_rejected("1234567", "it has only 7 bytes");
  expect_rejected(file_of(""), "does not begin with '{'");
  expect_rejected(file_of(" {}"), "does not begin with '{'");
  expect_rejected(file_of("{}\n"), "does not end with '}'");
  expect_rejected(file_of(std::string("{}\0{}", 5)), "zero byte");
  expect_rejected(file_of("{} {}"), "not JSON");
  expect_rejected(file_of("{}", "x"), "too long");
  expect_rejected(file_of("{\"\xff\":{}}"), "not JSON at byte");
  expect_rejected(file_of("{\"a\":1}"), "a number where a tensor description is expected");
  expect_rejected(file_of("{\"a\":[]}"), "an array where a tensor description is expected");
  expect_rejected(file_of("{\"a\":{}}"), "\"a\" is missing dtype, shape or data_offsets");
  expect_rejected(tensor(R"("dtype":"F32","shape":[1])"), "is missing");
  expect_rejected(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), "is missing");
  expect_rejected(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), "more than two");
  expect_rejected(tensor(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), "\"F33\"");
  expect_rejected(tensor(R"("dtype":1,"shape":[1],"data_offsets":[0,4])"), "the dtype of tensor");
  expect_rejected(
      tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), "the shape of tensor");
  expect_rejected(
      tensor(R"("dtype":"F32","shape":[1e0],"data_offsets":[0,4])"), "not a 64-bit integer");
  expect_rejected(
      tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "a negative number");
  expect_rejected(tensor(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), "deeper than 3");
  expect_rejected(tensor(R"("dtype":"F32","shape":{},"data_offsets":[0,4])"), "contains an object");
  expect_rejected(
      tensor(R"("dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4])"), "the field");
  expect_rejected(
      tensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4])"), "64-bit");
  expect_rejected(
      tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"), "dim of");
  expect_rejected(
      tensor(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"),
      "too many bytes");
  expect_rejected(
      tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), "whole number of bytes");
  expect_rejected(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "needs 4 bytes");
  expect_rejected(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,5])"), "needs 4 bytes");
  expect_rejected(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "truncated");
  expect_rejected(
      tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])") + "12345678",
      "begins at data byte 4");
  expect_rejected(file_of(R"({"__metadata__":{"a":1}})"), "__metadata__ \"a\" is a number");
  expect_rejected(file_of(R"({"__metadata__":{"a":"1","a":"1"}})"), "twice");
  expect_rejected(file_of(R"({"__metadata__":{},"__metadata__":{}})"), "two entries");
  expect_rejected(file_of(R"({"__metadata__":[]})"), "an array");
  const std::string one = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_rejected(file_of("{" + one + "," + one + "}", "1"), "the tensor \"a\" twice");
  const std::string overlap = R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  expect_rejected(
      file_of("{" + one + "," + overlap + "}", "12"), "begins at data byte 0; expected 1");
}

TEST(Safetensors, RejectsHugeLengthsBeforeReadingThem) {
  for (const uint64_t length :
       std::vector<uint64_t>{kMaximumHeaderBytes + 1, ~0ULL, ~0ULL - 7, 1ULL << 63}) {
    expect_rejected(std::string(reinterpret_cast<const char*>(&length), 8) + "{}", "100,000,000");
  }
  const uint64_t length = kMaximumHeaderBytes;
  expect_rejected(std::string(reinterpret_cast<const char*>(&length), 8) + "{}", "truncated");
  expect_rejected(file_of("{" + std::string(100000, '[')), "end with");
  expect_rejected(file_of("{\"a\":" + std::string(100000, '[') + "}"), "array");
  const std::string huge(1000000, 'n');
  try {
    parse(file_of("{\"" + huge + "\":1.5}"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(error.message().size(), 500U);
  }
}

TEST(Safetensors, EveryTruncationIsRejected) {
  const EncodedHeader encoded = encode_safetensors_header(
      {{"a", FileDtype::kF32, {3, 2}}, {"b", FileDtype::kBF16, {5}}, {"c", FileDtype::kF32, {0}}});
  const std::string file =
      encoded.bytes + std::string(encoded.layout.file_size - encoded.bytes.size(), 'x');
  EXPECT_NO_THROW(parse(file));
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THROW(parse(file.substr(0, size)), Error) << size;
  }
  EXPECT_THROW(parse(file + "x"), Error);
}

/// Expects that any bytes give an Error, or tensors that tile the file's data. Returns true if the
/// file was accepted.
bool expect_safe(const std::string& file) {
  SafetensorsHeader header;
  try {
    header = parse(file);
  } catch (const Error&) {
    return false;
  }
  uint64_t next = 0;
  for (const TensorEntry& tensor : header.tensors) {
    EXPECT_EQ(tensor.begin, next);
    EXPECT_EQ(tensor_bytes(tensor), tensor.bytes());
    EXPECT_GE(tensor.elements(), 0);
    next = tensor.end;
  }
  EXPECT_EQ(header.data_begin + next, file.size());
  return true;
}

TEST(Safetensors, MutatedHeadersAreRejectedOrSafe) {
  set_log_level(LogLevel::kError);
  const int64_t rounds = fuzz_rounds(100000);
  const std::string seeds[] = {
      file_of(
          R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},)"
          R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[24,32]}} )",
          std::string(32, 'd')),
      file_of(R"({"a":{"dtype":"F4","shape":[],"x":[{}],"data_offsets":[0,0]}})"),
      file_of(R"({"a":{"dtype":"U8","y":"z","shape":[2,0],"data_offsets":[0,0]}})"),
      file_of("{}"),
  };
  Mutator mutator(7);
  int64_t taken = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    std::string file = mutator.mutate(seeds[mutator.below(std::size(seeds))]);
    const size_t end = file.rfind('}');
    if (mutator.below(4) != 0 && file.size() >= 8 && end != std::string::npos && end >= 8) {
      const uint64_t length = end - 7;  // usually a length that fits
      std::memcpy(file.data(), &length, 8);
    }
    taken += expect_safe(file) ? 1 : 0;
  }
  EXPECT_GT(taken, rounds / 100);  // some mutations pass the parser
  EXPECT_LT(taken, rounds / 2);
  set_log_level(LogLevel::kInfo);
}

TEST(Safetensors, MapsAFileAndFindsTensors) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.safetensors";
  const EncodedHeader encoded =
      encode_safetensors_header({{"a", FileDtype::kU8, {2}}, {"b", FileDtype::kU8, {3}}});
  write_file_atomically(path, encoded.bytes + "aabbb");
  const SafetensorsFile file(path);
  ASSERT_NE(file.find("b"), nullptr);
  EXPECT_EQ(file.find("c"), nullptr);
  const auto bytes = file.bytes(*file.find("b"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "bbb");
  std::filesystem::resize_file(path, encoded.bytes.size() + 4);
  expect_error(ErrorKind::kCheckpoint, {path.string(), "truncated", "\"b\""}, [&] {
    SafetensorsFile(path, ErrorKind::kCheckpoint);
  });
}

TEST(Text, CutsAndEscapesNames) {
  EXPECT_EQ(shown("a\x1b[2J\xff"), "\"a\\u001b[2J\xef\xbf\xbd\"");
  EXPECT_EQ(shape_text(std::vector<int64_t>{2, 3}), "[2, 3]");
  EXPECT_EQ(shape_text(std::vector<int64_t>(9, 1)), "[1, 1, 1, 1, 1, 1, 1, 1, ...]");
  EXPECT_EQ(list_text(std::vector<std::string>{"a", "b", "c"}, 2), "a, b and 1 more");
}

}  // namespace safetensors_test
}  // namespace lockstep::checkpoint
