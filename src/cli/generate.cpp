// `lockstep generate`: continues a prompt.
#include "cli/generate.h"

#include <cstdio>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/json_lines.h"
#include "base/log.h"
#include "cli/adapter_flags.h"
#include "cli/quantization_flags.h"
#include "cli/rank_context.h"
#include "data/chat.h"
#include "nn/generate.h"
#include "ops/host_memory.h"
#include "start/parse.h"
#include "train/checkpointing.h"
#include "train/machine/rank_context.h"
#include "train/plan.h"
#include "train/samples.h"
#include "train/weights/adapter_folder.h"
#include "train/weights/device_map.h"
#include "train/weights/model_loading.h"

namespace lockstep::cli {
namespace {

struct Request {
  std::string model, tokenizer, dtype = "auto", device_map = "auto";
  std::optional<std::string> prompt;  // not given: a conversation
  std::string system;
  bool is_chat = false;
  /// Given options; the others are those of generation_config.json, otherwise the defaults.
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k, max_new_tokens, min_new_tokens;
  nn::GenerateOptions options;
  std::string settings;  // description of what generation_config.json decides; may be empty
  int64_t tensor = 1;
  train::AdapterFlags adapters;
  train::QuantizationFlags quantization;
};

/// Fills the request. Returns kHelpShown if the command is complete.
start::Parsed read_request(std::vector<std::string> arguments, Request& request) {
  CLI::App app(
      "Continue a prompt and print both; for an encoder-decoder, print its answer. With --chat and "
      "no prompt, answer each line of stdin in a conversation");
  app.name("lockstep generate");
  app.add_option(
         "model,--model",
         request.model,
         "A model folder, a checkpoint, an output_dir, an adapter folder, or a Hub name")
      ->required();
  add_adapter_flags(app, request.adapters);
  app.add_option("--tokenizer", request.tokenizer, "Tokenizer to use instead of the model's. path");
  app.add_option("prompt,--prompt", request.prompt, "Text to continue; - reads stdin. string");
  app.add_flag(
      "--chat",
      request.is_chat,
      "Treat the prompt as a user message, or a JSON list of messages, rendered by the chat "
      "template; print only the answer");
  app.add_option("--system", request.system, "With --chat: system message. string");
  app.add_option(
         "--max-new-tokens,--max_new_tokens",
         request.max_new_tokens,
         "Maximum number of new tokens. int; default: generation_config.json, otherwise 20")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option(
         "--min-new-tokens,--min_new_tokens",
         request.min_new_tokens,
         "Minimum number of new tokens before EOS is allowed. int; default: "
         "generation_config.json, "
         "otherwise 0")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option(
         "--temperature",
         request.temperature,
         "Sampling temperature; 0 is greedy. float; default: generation_config.json, otherwise 0")
      ->check(start::between(0, 1e6));
  app.add_option(
         "--top-k,--top_k",
         request.top_k,
         "Sample from the k most likely tokens; 0: all. int; default: generation_config.json, "
         "otherwise 0")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option(
         "--top-p,--top_p",
         request.top_p,
         "Sample from the smallest set of tokens with this total probability. float; default: "
         "generation_config.json, otherwise 1")
      ->check(start::between(0, 1));
  app.add_option("--seed", request.options.seed, "Seed of sampling. int");
  app.add_option("--dtype", request.dtype, "Type of the weights. string")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}));
  app.add_option(
         "--device-map,--device_map",
         request.device_map,
         "Placement of weights. string: auto (all visible GPUs, then host memory) or cpu")
      ->check(CLI::IsMember({"auto", "cpu"}));
  app.add_option("--tensor", request.tensor, "Tensor-parallel ranks to start. int")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  add_quantization_flags(app, request.quantization);
  return start::parse(app, std::move(arguments));
}

void write_out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(ErrorKind::kRun, "cannot write to stdout");
  }
}

void tell_settings(const Request& request) {
  if (!request.settings.empty()) {
    log_info("{}: {}", model::kGenerationConfigName, request.settings);
  }
}

enum class Output { kStdout, kNone };

/// Writes the prompt and its continuation. If the model is an encoder-decoder, writes only the
/// answer.
void continue_prompt(
    const nn::LanguageModel& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const std::vector<int64_t>& prompt,
    const Request& request,
    Output output) {
  const auto write = [&](const std::string& text) {
    if (output == Output::kStdout) {
      write_out(text);
    }
  };
  // A decoder continues the prompt. An encoder-decoder writes a separate answer.
  const bool answers = model.config().is_encoder_decoder() || request.is_chat;
  if (output == Output::kStdout) {
    tell_settings(request);
  }
  write(answers ? "" : *request.prompt);
  text::StreamDecoder decoder(
      tokenizer, answers ? text::DecodedSpecials::kSkip : text::DecodedSpecials::kKeep);
  nn::generate(model, prompt, request.options, [&](int64_t id) {
    write(decoder.push(static_cast<int32_t>(id)));
    return true;
  });
  write(decoder.finish() + "\n");
}

/// Returns the system message and the prompt, which is the user's message or a list of messages.
data::Chat chat_of(const Request& request) {
  data::Chat chat;
  if (!request.system.empty()) {
    chat.messages.push_back({{"role", "system"}, {"content", request.system}});
  }
  if (!request.prompt) {
    return chat;
  }
  auto given = parse_ordered_json(*request.prompt);
  if (given.is_array()) {
    for (auto& message : data::read_chat({{"messages", given}}, "messages", "--prompt").messages) {
      chat.messages.push_back(std::move(message));
    }
  } else {
    chat.messages.push_back({{"role", "user"}, {"content", *request.prompt}});
  }
  return chat;
}

/// Sets the options from the command line, the model's generation settings and the defaults, in
/// this order. As in transformers, the settings of sampling only apply with do_sample.
void take_settings(
    const model::GenerationConfig& settings, const model::ModelConfig& config, Request& request) {
  std::vector<std::string> taken;
  const auto take = [&](const char* name, const auto& given, const auto& setting, auto& option) {
    if (given) {
      option = *given;
    } else if (setting && *setting != option) {
      option = *setting;
      taken.push_back(fmt::format("{} {}", name, *setting));
    }
  };
  if (!settings.eos_token_ids.empty() && settings.eos_token_ids != config.eos_token_ids) {
    taken.push_back(fmt::format("eos_token_id {}", fmt::join(settings.eos_token_ids, ", ")));
  }
  nn::GenerateOptions& options = request.options;
  take("max_new_tokens", request.max_new_tokens, settings.max_new_tokens, options.max_new_tokens);
  take("min_new_tokens", request.min_new_tokens, settings.min_new_tokens, options.min_new_tokens);
  const model::GenerationConfig sampling = settings.samples ? settings : model::GenerationConfig{};
  const std::optional<double> temperature =
      settings.samples ? std::optional(settings.temperature.value_or(1)) : std::nullopt;
  take("temperature", request.temperature, temperature, options.temperature);
  take("top_k", request.top_k, sampling.top_k, options.top_k);
  take("top_p", request.top_p, sampling.top_p, options.top_p);
  if (!settings.unsupported.empty()) {
    taken.push_back(fmt::format("not supported: {}", fmt::join(settings.unsupported, ", ")));
  }
  request.settings = fmt::format("{}", fmt::join(taken, "; "));
}

/// Returns only the options of the command line. Options that are not given have neutral values.
nn::GenerateOptions options_given(const Request& request) {
  nn::GenerateOptions options;
  options.top_p = request.top_p.value_or(1);
  options.min_new_tokens = request.min_new_tokens.value_or(0);
  options.max_new_tokens = request.max_new_tokens.value_or(std::numeric_limits<int64_t>::max());
  return options;
}

void check_options(const nn::GenerateOptions& options) {
  if (options.top_p == 0) {
    throw Error(
        ErrorKind::kConfig,
        "--top-p 0 leaves no token",
        "for greedy decoding use --temperature 0 or --top-k 1");
  }
  if (options.min_new_tokens > options.max_new_tokens) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "--min-new-tokens is {}, more than --max-new-tokens {}",
            options.min_new_tokens,
            options.max_new_tokens),
        "lower the first or raise the second");
  }
}

std::shared_ptr<const data::ChatTemplate> chat_template(const text::Tokenizer& tokenizer) {
  auto chats = data::ChatTemplate::of(tokenizer);
  if (chats == nullptr) {
    throw Error(
        ErrorKind::kConfig,
        "--chat: the tokenizer has no chat template",
        "use a model whose tokenizer has one, or remove --chat");
  }
  return chats;
}

std::vector<int64_t> encode_chat(const text::Tokenizer& tokenizer, const data::Chat& chat) {
  const std::vector<int32_t> ids = tokenizer.encode(
      chat_template(tokenizer)->prompt(chat),
      text::SpecialTokens::kRecognise,
      text::Template::kOmit);
  return {ids.begin(), ids.end()};
}

/// Conversation with a model. Each message of the user is answered with all earlier ones as
/// context, up to the model's positions.
class Conversation {
 public:
  Conversation(
      const nn::LanguageModel& model,
      std::shared_ptr<const text::Tokenizer> tokenizer,
      const Request& request)
      : model_(model),
        tokenizer_(std::move(tokenizer)),
        options_(request.options),
        chat_(chat_of(request)),
        kept_(chat_.messages.size()) {}

  /// Answers each line of stdin until it ends.
  void run() {
    const bool is_interactive = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
    const std::string mark = is_interactive ? "> " : "";
    write_out(mark);
    for (std::string line; std::getline(std::cin, line); write_out(mark)) {
      if (line.find_first_not_of(" \t\r") != std::string::npos) {
        answer(line);
      }
    }
    write_out(is_interactive ? "\n" : "");
  }

 private:
  void answer(const std::string& message) {
    chat_.messages.push_back({{"role", "user"}, {"content", message}});
    std::string answer;
    text::StreamDecoder decoder(tokenizer_, text::DecodedSpecials::kSkip);
    const auto show = [&](const std::string& text) {
      write_out(text);
      answer += text;
    };
    nn::generate(model_, prompt(), options_, [&](int64_t id) {
      show(decoder.push(static_cast<int32_t>(id)));
      return true;
    });
    show(decoder.finish());
    write_out("\n");
    chat_.messages.push_back({{"role", "assistant"}, {"content", answer}});
  }

  /// Returns the prompt. Removes the oldest messages if it and the answer exceed the model's
  /// positions.
  std::vector<int64_t> prompt() {
    const auto limit = model::position_limit(model_.config());
    std::vector<int64_t> ids = encode_chat(*tokenizer_, chat_);
    while (limit && std::ssize(ids) + options_.max_new_tokens > *limit &&
           chat_.messages.size() > kept_ + 2) {
      const auto oldest = chat_.messages.begin() + static_cast<std::ptrdiff_t>(kept_);
      chat_.messages.erase(oldest, oldest + 2);  // a message and its answer
      ids = encode_chat(*tokenizer_, chat_);
      if (!has_removed_) {
        log_warning(
            "the conversation exceeds the model's {} positions: its oldest messages are removed",
            *limit);
        has_removed_ = true;
      }
    }
    return ids;
  }

  const nn::LanguageModel& model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  nn::GenerateOptions options_;
  data::Chat chat_;
  size_t kept_;  // messages at the beginning that are never removed
  bool has_removed_ = false;
};

/// Encodes the prompt, if any. The template's end marker of assistant messages also ends an answer.
std::vector<int64_t> encode(
    const text::Tokenizer& tokenizer, const model::ModelConfig& config, Request& request) {
  if (!request.is_chat) {
    return train::encode_prompt(tokenizer, config, *request.prompt);
  }
  (void)chat_template(tokenizer);
  if (const auto end = data::end_of_turn_token(tokenizer)) {
    request.options.stop_tokens.push_back(*end);
  }
  return request.prompt ? encode_chat(tokenizer, chat_of(request)) : std::vector<int64_t>{};
}

/// Reads the prompt from stdin if it is "-". Throws Error (config) if a prompt is required but not
/// given.
void read_prompt(Request& request) {
  if (!request.prompt && !request.is_chat) {
    throw Error(
        ErrorKind::kConfig,
        "lockstep generate: a prompt is required",
        "give --prompt TEXT, or --chat for a conversation; see `lockstep generate --help`");
  }
  const bool reads_stdin = !request.prompt || *request.prompt == "-";
  if (reads_stdin && request.tensor > 1) {
    throw Error(
        ErrorKind::kConfig,
        "several ranks cannot read the prompt from stdin",
        "give the text with --prompt, or leave --tensor at 1");
  }
  if (request.prompt == "-") {
    request.prompt.emplace(
        std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
}

/// Generates on the ranks of a tensor-parallel group. Each rank has its shard of the model.
int generate_on_ranks(
    const Request& request,
    const std::vector<std::string>& arguments,
    const model::ModelSource& source,
    train::ModelRequest load,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const std::vector<int64_t>& prompt) {
  RankOptions ranks;
  ranks.command = "generate";
  ranks.arguments = arguments;
  ranks.ranks = request.tensor;
  ranks.use_cpu = request.device_map == "cpu";
  return run_ranks(ranks, [&](train::RankContext& rank_context) {
    load.device = rank_context.device;
    config::ParallelSection parallel;
    parallel.tensor = request.tensor;
    parallel::ParallelGroups axes(
        rank_context.communicator,
        train::mesh_of(parallel, rank_context.size()),
        rank_context.group);
    const parallel::Plan plan;
    const parallel::ShardedModel sharded =
        parallel::make_sharded_model(train::model_spec(source, load), plan, axes);
    continue_prompt(
        *sharded.model,
        tokenizer,
        prompt,
        request,
        rank_context.is_first() ? Output::kStdout : Output::kNone);
    return 0;
  });
}

}  // namespace

int run_generate(std::vector<std::string> arguments) {
  Request request;
  if (read_request(arguments, request) == start::Parsed::kHelpShown) {
    return 0;
  }
  check_options(options_given(request));
  read_prompt(request);
  train::use_adapter_folder(request.model, request.adapters.folders);
  const model::ModelSource source = train::find_source(request.model, "");
  if (source.config.bidirectional) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is an encoder ({}): it fills gaps in a text and cannot continue one",
            source.name,
            model::family_name(source.config.family)),
        "`lockstep eval` computes its masked loss, `lockstep predict` its classifier's labels");
  }
  model::require_weights(source);
  train::ModelRequest load;
  load.adapter = train::saved_adapters(request.adapters);
  if (train::config_with(source.config, load.adapter).head.classifies()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} is a classifier and generates no text", source.name),
        "`lockstep predict` predicts the label of each row");
  }
  const auto tokenizer =
      train::load_tokenizer(train::tokenizer_path(request.tokenizer, load.adapter), source);
  if (request.is_chat && source.config.is_encoder_decoder()) {
    throw Error(
        ErrorKind::kConfig, "--chat is not supported for encoder-decoder models", "remove it");
  }
  const model::GenerationConfig settings = train::generation_with(source, load.adapter);
  take_settings(settings, source.config, request);
  check_options(request.options);
  request.options.stop_tokens = model::stop_tokens(settings, source.config);
  const std::vector<int64_t> prompt = encode(*tokenizer, source.config, request);
  load.dtype = request.dtype == "auto"      ? train::stored_type(source)
               : request.dtype == "float32" ? at::kFloat
                                            : at::kBFloat16;
  load.tokenizer_size = tokenizer->vocabulary_size();
  load.is_evaluation = true;
  load.quantization = train::quantization_of(request.quantization);
  if (request.tensor > 1) {
    return generate_on_ranks(request, arguments, source, load, tokenizer, prompt);
  }
  train::keep_threads_within_quota(1);
  ops::keep_host_memory();  // large pages accelerate reading the weights
  const auto positions = request.prompt
                             ? static_cast<int64_t>(prompt.size()) + request.options.max_new_tokens
                             : source.config.max_positions;
  const auto model = train::load_over_devices(source, load, request.device_map, positions);
  if (!request.prompt) {
    tell_settings(request);
    Conversation(*model, tokenizer, request).run();
    return 0;
  }
  continue_prompt(*model, tokenizer, prompt, request, Output::kStdout);
  return 0;
}

}  // namespace lockstep::cli
