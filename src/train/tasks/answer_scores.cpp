// Scores and generates answers on several ranks.
#include "train/tasks/answer_scores.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/communicator.h"
#include "data/raw_label.h"
#include "data/sequences.h"
#include "nn/generate.h"

namespace lockstep::train {
namespace {

constexpr int64_t kRoundBatches = 4;  // batches per round of generation

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

/// Returns the token ids of rows [begin, end) and the labels of their answers. Both are
/// right-padded, [B, T].
std::pair<at::Tensor, at::Tensor> padded(
    const std::vector<data::EncodedAnswer>& rows, int64_t begin, int64_t end) {
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
  return {ids, labels};
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

AnswerReader::AnswerReader(
    const nn::LanguageModel& model,
    parallel::ParallelGroups& axes,
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
    int64_t batches, const std::function<std::string(int64_t batch)>& compute) {
  comm::Communicator& data = axes_.along(mesh::Axis::kData);
  auto mine = nlohmann::json::object();
  for (int64_t first = 0; first < batches; first += data.size()) {
    if (const int64_t batch = first + data.rank(); batch < batches) {
      mine[std::to_string(batch)] = compute(batch);
    }
    if (progress_) {
      progress_(std::min(first + data.size(), batches), batches);
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

std::vector<std::string> AnswerReader::on_all_ranks(
    int64_t rows,
    int64_t rows_at_once,
    const std::function<std::string(int64_t begin, int64_t end)>& compute) {
  return on_all_ranks((rows + rows_at_once - 1) / rows_at_once, [&](int64_t batch) {
    return compute(batch * rows_at_once, std::min(rows, (batch + 1) * rows_at_once));
  });
}

std::vector<AnswerScore> AnswerReader::score(const std::vector<data::EncodedAnswer>& rows) {
  std::vector<data::JudgedText> texts;
  for (const auto& [prompt, answer] : rows) {
    data::JudgedText& text = texts.emplace_back();
    text.ids.assign(prompt.begin(), prompt.end());
    text.ids.insert(text.ids.end(), answer.begin(), answer.end());
    text.begin = prompt.size();
  }
  const std::vector<std::vector<size_t>> groups = groups_to_read(model_, texts);
  std::vector<size_t> ends;  // end of each batch, as an index into groups
  int64_t read = 0;          // rows in the last batch
  for (size_t group = 0; group < groups.size(); ++group) {
    if (ends.empty() || read >= batch_size_) {
      ends.push_back(group);
      read = 0;
    }
    ends.back() = group + 1;
    read += std::ssize(groups[group]);
  }
  const auto groups_of = [&](size_t batch) {
    const size_t begin = batch == 0 ? 0 : ends[batch - 1];
    return std::span(groups).subspan(begin, ends[batch] - begin);
  };
  const auto batches = on_all_ranks(std::ssize(ends), [&](int64_t batch) {
    auto json = nlohmann::json::array();
    for (const AnswerScore& score :
         score_trees(model_, texts, groups_of(static_cast<size_t>(batch)), device_)) {
      json.push_back({score.log_likelihoods, score.likeliest});
    }
    return json.dump();
  });
  std::vector<AnswerScore> all(rows.size());
  for (size_t batch = 0; batch < batches.size(); ++batch) {
    const nlohmann::json scores = nlohmann::json::parse(batches[batch]);
    size_t at = 0;
    for (const std::vector<size_t>& group : groups_of(batch)) {
      for (const size_t row : group) {
        const nlohmann::json& score = scores.at(at++);
        all[row] = {score[0].get<std::vector<double>>(), score[1].get<std::vector<bool>>()};
      }
    }
  }
  return all;
}

int64_t AnswerReader::rows_written_at_once(int64_t max_new_tokens) const {
  constexpr int64_t kCacheBytes = int64_t{256} << 20;  // for keys and values
  constexpr int64_t kBytes = 2 * static_cast<int64_t>(sizeof(float));
  constexpr int64_t kPrompt = 64;
  const model::ModelConfig& model = model_.config();
  const int64_t of_token = kBytes * model.layers * model.kv_heads * model.head_dim;
  return std::max(batch_size_, kCacheBytes / (of_token * (kPrompt + max_new_tokens)));
}

int64_t AnswerReader::rows_of_a_round(int64_t max_new_tokens) const {
  return kRoundBatches * rows_written_at_once(max_new_tokens);
}

std::vector<WrittenAnswer> AnswerReader::write(
    const std::vector<AskedQuestion>& rows,
    int64_t max_new_tokens,
    const std::vector<int64_t>& stop_tokens,
    const std::vector<std::string>& stop_words) {
  const at::NoGradGuard no_gradient;
  const auto decode = [&](std::vector<int32_t> ids) {
    return clean_up_tokenization(tokenizer_->decode(ids, text::DecodedSpecials::kSkip));
  };
  // A larger batch costs little more per pass, but it must leave enough batches for all ranks.
  const int64_t at_once = std::clamp(
      (std::ssize(rows) + kRoundBatches - 1) / kRoundBatches,
      batch_size_,
      rows_written_at_once(max_new_tokens));
  // Sort by length so that the rows of a batch have similar lengths.
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t row) { return rows[row].prompt.size(); });
  const auto write_batch = [&](int64_t begin, int64_t end) {
    std::vector<std::vector<int64_t>> prompts;
    std::vector<int64_t> most;
    for (int64_t at = begin; at < end; ++at) {
      const std::vector<int32_t>& prompt = rows[order[static_cast<size_t>(at)]].prompt;
      const int64_t room = model_.config().max_positions - std::ssize(prompt);
      if (!prompt.empty() && room > 0) {
        prompts.emplace_back(prompt.begin(), prompt.end());
        most.push_back(std::min(max_new_tokens, room));
      }
    }
    const std::vector<nn::Generated> found = nn::generate_rows(model_, prompts, most, stop_tokens);
    auto next = found.begin();
    auto json = nlohmann::json::array();
    for (int64_t at = begin; at < end; ++at) {
      const AskedQuestion& row = rows[order[static_cast<size_t>(at)]];
      std::vector<int32_t> written;
      if (!row.prompt.empty() && std::ssize(row.prompt) < model_.config().max_positions) {
        for (const int64_t id : (next++)->ids) {
          if (std::ranges::find(stop_tokens, id) == stop_tokens.end()) {
            written.push_back(static_cast<int32_t>(id));
          }
        }
      }
      const std::string input = decode(row.prompt);
      std::string text = decode(written);
      for (const std::string& word : stop_words) {
        text.resize(std::min(text.size(), text.find(word)));
      }
      json.push_back({input, stripped(without_all(decode(row.whole), input)), stripped(text)});
    }
    return json.dump();
  };
  const auto batches = on_all_ranks(std::ssize(rows), at_once, write_batch);
  std::vector<WrittenAnswer> all(rows.size());
  size_t at = 0;
  for (const std::string& batch : batches) {
    for (const nlohmann::json& row : nlohmann::json::parse(batch)) {
      all[order[at++]] = {row[0], row[1], row[2]};
    }
  }
  return all;
}

std::vector<std::vector<double>> AnswerReader::standard_scores(
    const std::vector<data::EncodedAnswer>& rows) {
  const at::NoGradGuard no_gradient;
  constexpr double kLeast = 1e-6;  // minimum variance
  const auto batches = on_all_ranks(std::ssize(rows), batch_size_, [&](int64_t begin, int64_t end) {
    auto json = nlohmann::json::array();
    for (int64_t row = begin; row < end;
         ++row) {  // one row at a time to save memory, because all logits are needed
      const auto [ids, labels] = padded(rows, row, row + 1);
      nn::ForwardInputs inputs;
      inputs.ids = ids.to(device_);
      const at::Tensor tokens = nn::next_tokens(labels).tokens[0];  // [T]
      const at::Tensor places = tokens.ne(data::kIgnored).nonzero().squeeze(1).to(device_);
      const at::Tensor log_p =
          model_.logits(inputs)[0].index_select(0, places).to(at::kFloat).log_softmax(-1);
      const at::Tensor p = log_p.exp();
      const at::Tensor mean = (p * log_p).sum(-1);
      const at::Tensor variance = (p * log_p.square()).sum(-1) - mean.square();
      const at::Tensor own =
          log_p.gather(1, tokens.to(device_).index_select(0, places).unsqueeze(1)).squeeze(1);
      const at::Tensor scores =
          ((own - mean) / variance.clamp_min(kLeast).sqrt()).to(at::kCPU, at::kDouble).contiguous();
      json.push_back(std::vector<double>(
          scores.const_data_ptr<double>(), scores.const_data_ptr<double>() + scores.numel()));
    }
    return json.dump();
  });
  std::vector<std::vector<double>> all;
  for (const std::string& batch : batches) {
    for (const nlohmann::json& row : nlohmann::json::parse(batch)) {
      all.push_back(row);
    }
  }
  return all;
}

std::vector<double> AnswerReader::gradient_norms(const std::vector<data::EncodedAnswer>& rows) {
  if (axes_.mesh().tensor > 1) {
    throw Error(
        ErrorKind::kConfig,
        "mia_gradnorm is not supported with tensor parallelism",
        "leave parallel.tensor at 1, or remove mia_gradnorm from unlearning.metrics");
  }
  std::vector<at::Tensor> parameters;
  const_cast<nn::LanguageModel&>(model_).visit_parameters(  // lists the parameters only
      [&](const std::string&, at::Tensor& parameter) {
        if (at::isFloatingType(parameter.scalar_type())) {
          parameters.push_back(parameter.set_requires_grad(true));
        }
      });
  const auto norm_of = [&](int64_t row) {
    const auto [ids, labels] = padded(rows, row, row + 1);
    nn::ForwardInputs inputs;
    inputs.ids = ids.to(device_);
    inputs.targets = nn::next_tokens(labels).to(device_);
    const double tokens = std::max(1.0, inputs.targets.counts.item<double>());
    const at::AutoGradMode with_gradients(true);
    model_.loss(inputs).div(tokens).backward();
    double sum = 0;
    for (at::Tensor& parameter : parameters) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined()) {
        sum += gradient.to(at::kFloat).norm().item<double>();
        gradient = at::Tensor();
      }
    }
    return sum / static_cast<double>(parameters.size());
  };
  const auto batches = on_all_ranks(std::ssize(rows), batch_size_, [&](int64_t begin, int64_t end) {
    auto json = nlohmann::json::array();
    for (int64_t row = begin; row < end; ++row) {
      json.push_back(norm_of(row));
    }
    return json.dump();
  });
  for (at::Tensor& parameter : parameters) {
    parameter.set_requires_grad(false);
  }
  std::vector<double> all;
  for (const std::string& batch : batches) {
    for (const nlohmann::json& row : nlohmann::json::parse(batch)) {
      all.push_back(row);
    }
  }
  return all;
}

}  // namespace lockstep::train
