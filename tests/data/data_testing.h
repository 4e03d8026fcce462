// Helpers of the data tests: files of all kinds, a byte tokenizer, and expectations of Errors.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "base/file.h"
#include "data/documents.h"
#include "data/encoder.h"
#include "data/token_file.h"
#include "temporary_folder.h"

namespace lockstep::data {

inline std::string gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

inline std::filesystem::path write(
    const TemporaryFolder& folder, const std::string& name, std::string_view text) {
  std::filesystem::create_directories((folder.path() / name).parent_path());
  std::ofstream(folder.path() / name, std::ios::binary) << text;
  return folder.path() / name;
}

/// Returns the complete text of the Error that `body` throws; fails the test if it throws none.
inline std::string error_of(const std::function<void()>& body, ErrorKind kind = ErrorKind::kData) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Expects that `text` contains each of `parts`.
inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
  }
}

/// Byte tokenizer: each byte is its own id; 256 is end of text, 257 begin of text, 258 padding.
inline Encoder byte_encoder() {
  Encoder encoder;
  encoder.encode = [](std::string_view text) {
    std::vector<int32_t> ids;
    for (const char c : text) {
      ids.push_back(static_cast<unsigned char>(c));
    }
    return ids;
  };
  encoder.fingerprint = "bytes";
  encoder.vocabulary_size = 259;
  encoder.end = 256;
  encoder.pad = 258;
  return encoder;
}

/// Returns the documents of one file, joined as "prompt|text", or "text" without a prompt.
inline std::vector<std::string> documents_of(
    const std::filesystem::path& path,
    Format format,
    const DataOptions& options = {},
    const TextCutting& cutting = {}) {
  const DocumentSource source = open_documents({path, format}, options, cutting);
  std::vector<std::string> texts;
  Record record;
  while (source.records->next(record)) {
    std::vector<Document> documents;
    source.parse(std::move(record), documents);
    for (const Document& document : documents) {
      if (document.begins) {
        texts.emplace_back();
      }
      texts.back() += document.prompt.empty() ? "" : document.prompt + "|";
      texts.back() += document.text;
    }
  }
  return texts;
}

/// Document of a token file: its ids and the length of its prompt.
struct TestDocument {
  std::vector<int32_t> ids;
  int64_t prompt = 0;
};
inline std::filesystem::path write_tokens(
    const TemporaryFolder& folder,
    const std::vector<TestDocument>& documents,
    int64_t vocabulary = 1000,
    const std::string& name = "a.tokens") {
  TokenFileWriter writer(
      folder.path() / name,
      std::string(32, 'k'),
      vocabulary,
      std::min<int64_t>(999, vocabulary - 1));
  for (const TestDocument& document : documents) {
    writer.add(document.ids);
    writer.end_document(document.prompt);
  }
  writer.commit();
  return folder.path() / name;
}

}  // namespace lockstep::data
