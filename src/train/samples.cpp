// Generates text samples at evaluations.
#include "train/samples.h"

#include <algorithm>
#include <array>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/format.h"
#include "base/rank_status.h"
#include "nn/continuations.h"
#include "ops/token_loss.h"
#include "train/averages.h"
#include "train/batches/inputs.h"

namespace lockstep::train {
namespace {

/// A prompt and its continuation.
struct Row {
  std::vector<int64_t> ids;     // decoder input, ending with the generated tokens
  std::vector<int64_t> source;  // encoder input of an encoder-decoder
  size_t given = 0;             // number of prompt tokens in ids
  bool goes_on = true;
};

Error cannot(const std::string& why, const std::string& remedy) {
  return Error(ErrorKind::kConfig, fmt::format("monitor.samples: {}", why), remedy);
}

Row row_of(const Job& job, const std::string& prompt) {
  const model::ModelConfig& model = job.source.config;
  Row row;
  row.ids = encode_prompt(*job.tokenizer, model, prompt);
  if (model.is_encoder_decoder()) {
    row.source = std::move(row.ids);
    row.ids = {model.decoder_start_token_id};
  }
  row.given = row.ids.size();
  return row;
}

/// Pads the rows on the right to a common length.
at::Tensor table_of(const std::vector<Row>& rows, std::vector<int64_t> Row::* ids) {
  std::vector<nn::TokenIds> own;
  for (const Row& row : rows) {
    own.push_back(row.*ids);
  }
  return nn::table_of(own);
}

nn::ForwardInputs inputs_of(const std::vector<Row>& rows) {
  nn::ForwardInputs inputs;
  inputs.ids = table_of(rows, &Row::ids);
  inputs.targets.tokens = at::full_like(inputs.ids, ops::kIgnoredTarget);
  inputs.targets.counts = at::ones({std::ssize(rows)}, at::kDouble);
  for (size_t i = 0; i < rows.size(); ++i) {
    // Any token id works, because only the existence of a target is checked.
    inputs.targets.tokens[static_cast<int64_t>(i)][std::ssize(rows[i].ids) - 1] = 0;
  }
  if (!rows.front().source.empty()) {
    inputs.source = table_of(rows, &Row::source);
    inputs.source_mask = at::zeros_like(inputs.source, at::kBool);
    for (size_t i = 0; i < rows.size(); ++i) {
      inputs.source_mask[static_cast<int64_t>(i)]
          .narrow(0, 0, std::ssize(rows[i].source))
          .fill_(true);
    }
  }
  return inputs;
}

std::string sample_text(const Job& job, const Row& row) {
  const bool answers = !row.source.empty();
  std::vector<int32_t> ids;
  for (size_t i = row.given; i < row.ids.size(); ++i) {
    ids.push_back(static_cast<int32_t>(row.ids[i]));
  }
  return job.tokenizer->decode(
      ids, answers ? text::DecodedSpecials::kSkip : text::DecodedSpecials::kKeep);
}

}  // namespace

std::vector<int64_t> encode_prompt(
    const text::Tokenizer& tokenizer, const model::ModelConfig& config, const std::string& text) {
  const bool is_source = config.is_encoder_decoder();
  const std::vector<int32_t> ids = tokenizer.encode(
      text,
      text::SpecialTokens::kRecognise,
      is_source ? text::Template::kOmit : text::Template::kApply);
  std::vector<int64_t> prompt(ids.begin(), ids.end());
  if (is_source && tokenizer.eos()) {
    prompt.push_back(*tokenizer.eos());
  }
  return prompt;
}

void check_samples(const Job& job) {
  const config::MonitorSection& section = job.config.monitor;
  if (section.samples.empty()) {
    return;
  }
  const model::ModelConfig& model = job.source.config;
  if (job.task.head.classifies() || job.task.head.gives_states() || model.bidirectional) {
    throw cannot(
        "this model does not generate text; it is a classifier or a masked language model",
        "remove monitor.samples, or train a language model");
  }
  const config::TrainingSection& training = job.config.training;
  if (training.eval_strategy == "no" && !training.eval_on_start) {
    throw cannot(
        "samples are generated at evaluations, but this run has none",
        "set eval_strategy=steps eval_steps=100, and data.validation or data.validation_fraction");
  }
  const int64_t limit = model::position_limit(model).value_or(0);
  for (size_t i = 0; i < section.samples.size(); ++i) {
    const Row row = row_of(job, section.samples[i]);
    const size_t read = row.source.empty() ? row.given : row.source.size();
    if (read == 0) {
      throw cannot(fmt::format("prompt {} has no tokens", i + 1), "give the prompt some text");
    }
    if (limit > 0 && static_cast<int64_t>(read) >= limit) {
      throw cannot(
          fmt::format(
              "prompt {} has {} tokens, which leaves no room in the model's {} positions",
              i + 1,
              read,
              limit),
          "shorten it");
    }
  }
}

void write_samples(Job& job, RankContext& rank_context) {
  const config::MonitorSection& section = job.config.monitor;
  if (section.samples.empty()) {
    return;
  }
  begin_phase("writing samples");
  const Averages averages(*job.model);
  const model::ModelConfig& model = job.source.config;
  std::vector<Row> rows;
  for (const std::string& prompt : section.samples) {
    rows.push_back(row_of(job, prompt));
  }
  const std::vector<int64_t> stops = model::stop_tokens(job.source.generation, model);
  const int64_t limit = model::position_limit(model).value_or(0);
  const auto goes_on = [](const Row& row) { return row.goes_on; };
  for (int64_t made = 0; made < section.sample_tokens && std::ranges::any_of(rows, goes_on);
       ++made) {
    begin_phase("writing samples");
    if (job.interruption != nullptr) {
      job.interruption->check();
    }
    const std::array batches{to_device(inputs_of(rows), rank_context.device)};
    const at::Tensor next = job.model->next_tokens(batches).front().contiguous();
    // Use rank 0's token on all ranks. Otherwise replicas could diverge because of rounding.
    rank_context.communicator.broadcast(next, 0).wait();
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto id = static_cast<int64_t>(next.const_data_ptr<double>()[i]);
      Row& row = rows[i];
      if (!row.goes_on) {
        continue;
      }
      row.ids.push_back(id);
      row.goes_on = std::ranges::find(stops, id) == stops.end() &&
                    (limit <= 0 || std::ssize(row.ids) < limit);
    }
  }
  if (job.monitor != nullptr) {
    std::vector<monitor::Sample> samples;
    for (size_t i = 0; i < rows.size(); ++i) {
      samples.push_back({section.samples[i], sample_text(job, rows[i])});
    }
    job.monitor->samples(samples);
  }
}

}  // namespace lockstep::train
