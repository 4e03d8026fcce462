// `lockstep export`: writes merged, quantized and GGUF models.
#include "cli/export.h"

#include <filesystem>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cli/adapter_flags.h"
#include "cli/quantization_flags.h"
#include "start/parse.h"
#include "train/checkpointing.h"
#include "train/gguf_file.h"
#include "train/merge.h"
#include "train/weights/adapter_folder.h"
#include "train/weights/model_loading.h"

namespace lockstep::cli {
namespace {

struct ExportRequest {
  std::string model, output, dtype = "auto", gguf;
  bool merges = false;
  train::AdapterFlags adapters;
  train::QuantizationFlags quantization;
};

start::Parsed read_request(std::vector<std::string> arguments, ExportRequest& request) {
  CLI::App app(
      "Export a model as a folder that transformers loads: with adapters merged into it, with "
      "quantized linears (4 or 8 bits), or in another type; or as a GGUF file for llama.cpp");
  app.name("lockstep export");
  app.add_option(
         "model,--model",
         request.model,
         "A model folder, a checkpoint, an adapter folder, or a Hub name")
      ->required();
  add_adapter_flags(app, request.adapters);
  app.add_flag("--merge", request.merges, "Merge the adapters, which is also the default");
  app.add_option("--output", request.output, "Folder to write to; with --gguf the file. path")
      ->required();
  auto* dtype = app.add_option(
                       "--dtype",
                       request.dtype,
                       "Type of the written weights. string; default: auto (the model's)")
                    ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}));
  add_quantization_flags(app, request.quantization);
  app.add_option("--gguf", request.gguf, "Write a GGUF file with weights of this type. string")
      ->check(CLI::IsMember(train::gguf::file_type_names()))
      ->excludes(dtype)
      ->excludes("--bits");
  return start::parse(app, std::move(arguments));
}

std::optional<at::ScalarType> type_of(const std::string& name) {
  return name == "float32"    ? std::optional(at::kFloat)
         : name == "bfloat16" ? std::optional(at::kBFloat16)
         : name == "float16"  ? std::optional(at::kHalf)
                              : std::nullopt;
}

/// Returns the adapter's tokenizer, which has the chat template that the adapter was trained with,
/// or the model's if the adapter has none. Null if neither folder has one.
std::shared_ptr<const text::Tokenizer> find_tokenizer(
    const model::ModelSource& base, const std::filesystem::path& adapter) {
  for (const std::filesystem::path& folder : {adapter, base.folder}) {
    for (const char* file : {"tokenizer.json", "vocab.json", "spiece.model"}) {
      if (!folder.empty() && std::filesystem::exists(folder / file)) {
        return text::Tokenizer::load(folder);
      }
    }
  }
  return nullptr;
}

/// Throws Error if the output would overwrite the model, or if its name does not match the format.
void check_output(const ExportRequest& request, const model::ModelSource& base) {
  std::error_code ignored;
  for (const std::string& adapter : request.adapters.folders) {
    if (std::filesystem::equivalent(request.output, adapter, ignored)) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("--output {} is the adapter itself", request.output),
          "give another folder: a model in the folder of its adapter would be loaded with it, "
          "twice");
    }
  }
  if (std::filesystem::equivalent(request.output, base.folder, ignored)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--output {} is the model itself", request.output),
        "give another folder: the model's weights would be overwritten");
  }
  if (!request.gguf.empty() && std::filesystem::is_directory(request.output, ignored)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--output {} is a folder, and --gguf writes a file", request.output),
        fmt::format("give a file in it: {}/model.gguf", request.output));
  }
}

}  // namespace

int run_export(std::vector<std::string> arguments) {
  ExportRequest request;
  if (read_request(std::move(arguments), request) == start::Parsed::kHelpShown) {
    return 0;
  }
  train::use_adapter_folder(request.model, request.adapters.folders);
  if (request.merges && request.adapters.folders.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--merge: {} is not an adapter", request.model),
        "give the adapter with --adapter FOLDER");
  }
  const model::ModelSource base = train::find_source(request.model, "");
  check_output(request, base);
  const auto adapter = train::saved_adapters(request.adapters);
  const auto quantization = train::quantization_of(request.quantization);
  if (!adapter && !quantization && request.gguf.empty() && request.dtype == "auto") {
    throw Error(
        ErrorKind::kConfig,
        "nothing to do",
        "add --adapter FOLDER, --bits 4, --dtype bfloat16 or --gguf f16");
  }
  const std::filesystem::path folder = !adapter                 ? std::filesystem::path()
                                       : adapter->parts.empty() ? adapter->folder
                                                                : adapter->parts.front().folder;
  const auto tokenizer = find_tokenizer(base, folder);
  std::string type;  // of the written weights
  if (!request.gguf.empty()) {
    for (const std::string& note : train::save_gguf(
             request.output,
             train::MergedWeights(base, adapter),
             train::gguf::file_type(request.gguf),
             tokenizer.get())) {
      log_warning("{}", note);
    }
  } else {
    train::MergedModel model = train::merge_adapter(base, adapter, type_of(request.dtype));
    if (quantization) {
      train::pack(model, *quantization);
    }
    train::save_merged(request.output, model, tokenizer.get());
    type = train::type_name(model.type);
  }
  fmt::print(
      "{}: {}{}{}{}{}{}\n",
      request.output,
      request.model,
      adapter ? fmt::format(" with {} merged", fmt::join(request.adapters.folders, ", ")) : "",
      quantization ? fmt::format(", packed in {}", train::text_of(*quantization)) : "",
      base.config.quantization && !quantization ? ", dequantized" : "",
      type.empty() ? "" : fmt::format(", in {}", type),
      request.gguf.empty() ? "" : fmt::format(", as GGUF in {}", request.gguf));
  return 0;
}

}  // namespace lockstep::cli
