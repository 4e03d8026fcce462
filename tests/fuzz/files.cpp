// Fuzz targets for files: checkpoints, data, schedules, cluster descriptions.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/manifest_text.h"
#include "checkpoint/shard_index.h"
#include "data/byte_source.h"
#include "data/records.h"
#include "data/token_dataset.h"
#include "data/token_file.h"
#include "fuzz/helpers.h"
#include "launch/workers/watchdog.h"
#include "monitor/trainer_state.h"
#include "plan/machines/cluster.h"
#include "schedule/file.h"
#include "text/unicode/graphemes.h"
#include "text/unicode/unicode_normalization.h"
#include "text/unicode/utf8.h"

namespace lockstep::fuzz {

void read_manifest_text(Bytes bytes) {
  const checkpoint::Manifest manifest = checkpoint::parse_manifest(bytes, "manifest.json");
  const std::string text = checkpoint::manifest_json(manifest);
  check(
      checkpoint::manifest_json(checkpoint::parse_manifest(text, "again")) == text,
      "a manifest survives writing and reading");
  for (const auto& [name, record] : manifest.files) {
    check(fs::path(name).filename() == name && name != "..", "a file is in its folder");
  }
}

void read_shards(Bytes bytes) {
  const fs::path index = file_of(bytes, "model.safetensors.index.json");
  for (const auto& [tensor, file] : checkpoint::read_shard_index(index, ErrorKind::kData)) {
    check(fs::path(file).filename() == file && file != "..", "a shard is in its folder");
  }
}

/// Decompresses gzip and zstd. Reads of different sizes must give the same bytes, or fail both
/// times. Also splits the result into lines.
void read_compressed(Bytes bytes) {
  constexpr size_t kMost = size_t{1} << 20;
  const fs::path path = file_of(bytes, "f");
  const auto read = [&](size_t step) -> std::pair<std::string, bool> {
    std::string text;
    try {
      const auto source = data::open_bytes(path);
      std::string part(step, '\0');
      while (text.size() < kMost) {
        const size_t got = source->read({part.data(), part.size()});
        check(got <= part.size(), "a read does not exceed the buffer");
        if (got == 0) {
          return {text, true};
        }
        text.append(part, 0, got);
      }
    } catch (const Error&) {
      return {text, false};
    }
    return {text.substr(0, kMost), true};
  };
  const auto [whole, is_sound] = read(size_t{1} << 16);
  if (whole.size() < (size_t{1} << 14)) {
    const auto [in_parts, is_sound_too] = read(7);
    check(is_sound == is_sound_too, "the validity of a file does not depend on the read size");
    check(!is_sound || whole == in_parts, "the bytes do not depend on the read size");
    const auto lines = data::open_text(path, {});
    for (data::Record record; lines->next(record);) {
    }
  }
}

/// The input contains the header's fields and the rest of the file. Hashes are recomputed, as an
/// attacker would do.
void read_token_file(Bytes bytes) {
  data::TokenFileHeader header;
  constexpr size_t kFields = offsetof(data::TokenFileHeader, key) - sizeof header.magic;
  std::string file(data::TokenFileHeader::kSpace, '\0');
  std::memcpy(
      reinterpret_cast<char*>(&header) + sizeof header.magic,
      bytes.data(),
      std::min(bytes.size(), kFields));
  const Bytes contents = bytes.substr(std::min(bytes.size(), kFields));
  const auto put = [](std::array<char, 32>& field, const std::string& hash) {
    std::copy_n(hash.begin(), field.size(), field.begin());
  };
  put(header.content_hash, hash_hex(contents));
  put(header.header_hash, header.hash());
  std::memcpy(file.data(), &header, sizeof header);
  file += contents;
  const auto set = data::TokenDataset::open(file_of(file, "tokens"));
  set->verify();
  std::vector<int64_t> ids(static_cast<size_t>(set->tokens()));
  set->read(0, ids);
  for (const int64_t id : ids) {
    check(id < set->vocabulary_size(), "an id is in the vocabulary");
  }
  int64_t at = 0;
  for (int64_t i = 0; i < set->documents(); ++i) {
    const data::DocumentSpan document = set->document(i);
    check(
        document.begin == at && document.begin <= document.prompt_end &&
            document.prompt_end <= document.end && document.end <= set->tokens(),
        "documents are consecutive");
    if (document.end > document.begin) {
      check(set->document_of(document.begin) == i, "a token belongs to its document");
    }
    at = document.end;
  }
  for (int64_t i = 0; set->has_hidden() && i < set->tokens(); ++i) {
    (void)set->is_hidden(i);
  }
}

void read_unicode(Bytes bytes) {
  const size_t valid = text::valid_utf8_prefix(bytes);
  check(valid <= bytes.size(), "the result is a prefix");
  const Bytes text = bytes.substr(0, valid);
  check(text::valid_utf8_prefix(text) == text.size(), "valid text is unchanged");
  check(
      text::to_utf8(text::to_code_points(text)) == text, "code points survive reading and writing");
  for (size_t at = 0; at < text.size();) {
    const size_t end = text::grapheme_end(text, at);
    check(at < end && end <= text.size(), "a grapheme has an end");
    at = end;
  }
  using Form = text::NormalizationForm;
  for (const Form form : {Form::kNfc, Form::kNfd, Form::kNfkc, Form::kNfkd}) {
    const std::string normal = text::normalize(text, form);
    check(text::valid_utf8_prefix(normal) == normal.size(), "normalized text is valid UTF-8");
    check(text::normalize(normal, form) == normal, "normalization is idempotent");
  }
  const std::string lower = text::to_lower_case(text);
  check(text::valid_utf8_prefix(lower) == lower.size(), "lowercase text is valid UTF-8");
}

void read_schedule_file(Bytes bytes) {
  const schedule::Schedule schedule = schedule::parse_schedule(bytes, "f");
  const std::string text = schedule::schedule_text(schedule);
  check(
      schedule::schedule_text(schedule::parse_schedule(text, "again")) == text,
      "a schedule survives writing and reading");
}

void read_cluster_file(Bytes bytes) {
  (void)plan::parse_cluster(bytes, "cluster.yaml");
}

void read_trainer_state_file(Bytes bytes) {
  const monitor::TrainerState state = monitor::parse_trainer_state(bytes, "trainer_state.json");
  const std::string text = monitor::to_json(state);
  check(
      monitor::to_json(monitor::parse_trainer_state(text, "again")) == text,
      "a state survives writing and reading");
}

void read_timer_request(Bytes bytes) {
  if (const auto request = launch::parse_timer_request(bytes)) {
    check(request->pid > 0, "a timer belongs to one process");
  }
}

}  // namespace lockstep::fuzz
