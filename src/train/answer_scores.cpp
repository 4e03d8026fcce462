#include "train/answer_scores.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "data/raw_label.h"
#include "data/sequences.h"
#include "nn/generate.h"

namespace lockstep::train {
namespace {

std::string stripped(const std::string& text) {
  return data::trimmed(text).value_or("");
}

std::string without_all(std::string text, const std::string& part) {
  if (part.empty()) {
    return text;
  }
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) {
    text.erase(at, part.size());
  }
  return text;
}

}  // namespace

std::string clean_up_tokenization(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"}};
  for (const auto& [from, to] : kChanges) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
      text.replace(at, from.size(), to);
      at += to.size();
    }
  }
  return text;
}

double AnswerScore::loss() const {
  return log_likelihoods.empty()
             ? 0
             : -std::accumulate(log_likelihoods.begin(), log_likelihoods.end(), 0.0) /
                   static_cast<double>(log_likelihoods.size());
}

AnswerReader::AnswerReader(
    const nn::LanguageModel& model,
    parallel::Axes& axes,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t batch_size,
    c10::Device device,
    Progress progress)
    : model_(model),
      axes_(axes),
      tokenizer_(tokenizer),
      batch_size_(batch_size),
      device_(device),
      progress_(std::move(progress)) {}

std::vector<std::string> AnswerReader::on_all_ranks(
    int64_t rows, const std::function<std::string(int64_t begin, int64_t end)>& compute) {
  comm::Communicator& data = axes_.along(mesh::Axis::kData);
  const int64_t batches = (rows + batch_size_ - 1) / batch_size_;
  auto mine = nlohmann::json::object();
  for (int64_t batch = data.rank(); batch < batches; batch += data.size()) {
    const int64_t begin = batch * batch_size_, end = std::min(rows, begin + batch_size_);
    mine[std::to_string(batch)] = compute(begin, end);
    if (progress_) {
      progress_(batch + 1, batches);
    }
  }
  std::vector<std::string> all(static_cast<size_t>(batches));
  for (const std::string& text : comm::gather_strings(data, mine.dump())) {
    const nlohmann::json theirs = nlohmann::json::parse(text);
    for (const auto& [batch, value] : theirs.items()) {
      all[std::stoul(batch)] = value.get<std::string>();
    }
  }
  return all;
}

std::vector<AnswerScore> AnswerReader::score_batch(
    const std::vector<data::EncodedAnswer>& rows, int64_t begin, int64_t end) const {
  size_t length = 2;
  for (int64_t row = begin; row < end; ++row) {
    const auto& [prompt, answer] = rows[static_cast<size_t>(row)];
    length = std::max(length, prompt.size() + answer.size());
  }
  const at::Tensor ids = at::zeros({end - begin, static_cast<int64_t>(length)}, at::kLong);
  const at::Tensor labels = at::full_like(ids, data::kIgnored);
  auto id = ids.accessor<int64_t, 2>(), label = labels.accessor<int64_t, 2>();
  for (int64_t row = 0; row < end - begin; ++row) {
    const auto& [prompt, answer] = rows[static_cast<size_t>(begin + row)];
    int64_t at = 0;
    for (const int32_t token : prompt) {
      id[row][at++] = token;
    }
    for (const int32_t token : answer) {
      label[row][at] = id[row][at] = token;
      ++at;
    }
  }
  nn::ForwardInputs inputs;
  inputs.ids = ids.to(device_);
  inputs.targets = nn::next_tokens(labels).to(device_);
  const nn::Scores scores = model_.scores(inputs);
  const at::Tensor values = scores.log_likelihoods.to(at::kCPU, at::kDouble).contiguous();
  const at::Tensor right = scores.likeliest.to(at::kCPU).contiguous();
  const at::Tensor targets = nn::next_tokens(labels).tokens;
  std::vector<AnswerScore> result;
  for (int64_t row = 0; row < end - begin; ++row) {
    AnswerScore& score = result.emplace_back();
    for (int64_t at = 0; at < static_cast<int64_t>(length); ++at) {
      if (targets[row][at].item<int64_t>() != data::kIgnored) {
        score.log_likelihoods.push_back(values[row][at].item<double>());
        score.likeliest.push_back(right[row][at].item<bool>());
      }
    }
  }
  return result;
}

std::vector<AnswerScore> AnswerReader::score(const std::vector<data::EncodedAnswer>& rows) {
  const at::NoGradGuard no_gradient;
  const auto batches = on_all_ranks(std::ssize(rows), [&](int64_t begin, int64_t end) {
    auto json = nlohmann::json::array();
    for (const AnswerScore& score : score_batch(rows, begin, end)) {
      json.push_back({score.log_likelihoods, score.likeliest});
    }
    return json.dump();
  });
  std::vector<AnswerScore> all;
  for (const std::string& batch : batches) {
    for (const nlohmann::json& row : nlohmann::json::parse(batch)) {
      all.push_back({row[0].get<std::vector<double>>(), row[1].get<std::vector<bool>>()});
    }
  }
  return all;
}

std::vector<WrittenAnswer> AnswerReader::write(
    const std::vector<AskedQuestion>& rows,
    int64_t max_new_tokens,
    const std::vector<int64_t>& stop_tokens) {
  const at::NoGradGuard no_gradient;
  const auto decode = [&](std::vector<int32_t> ids) {
    return clean_up_tokenization(tokenizer_->decode(ids, text::DecodedSpecials::kSkip));
  };
  const auto write_one = [&](const AskedQuestion& row) -> nlohmann::json {
    const std::vector<int64_t> prompt(row.prompt.begin(), row.prompt.end());
    nn::GenerateOptions options;
    options.stop_tokens = stop_tokens;
    options.max_new_tokens =
        std::min(max_new_tokens, model_.config().max_positions - std::ssize(prompt));
    std::vector<int32_t> written;
    if (options.max_new_tokens > 0 && !prompt.empty()) {
      for (const int64_t id : nn::generate(model_, prompt, options).ids) {
        const bool stops = std::ranges::find(stop_tokens, id) != stop_tokens.end();
        if (!stops) {
          written.push_back(static_cast<int32_t>(id));
        }
      }
    }
    const std::string input = decode(row.prompt);
    return {input, stripped(without_all(decode(row.whole), input)), stripped(decode(written))};
  };
  const auto batches = on_all_ranks(std::ssize(rows), [&](int64_t begin, int64_t end) {
    auto json = nlohmann::json::array();
    for (int64_t row = begin; row < end; ++row) {
      json.push_back(write_one(rows[static_cast<size_t>(row)]));
    }
    return json.dump();
  });
  std::vector<WrittenAnswer> all;
  for (const std::string& batch : batches) {
    for (const nlohmann::json& row : nlohmann::json::parse(batch)) {
      all.push_back({row[0], row[1], row[2]});
    }
  }
  return all;
}

}  // namespace lockstep::train
