// Exports a model to a GGUF file.
#include "train/gguf_file.h"

#include <span>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "base/replace_file.h"
#include "train/gguf/families.h"
#include "train/gguf/vocabulary.h"

namespace lockstep::train {
namespace {

constexpr uint32_t kBlocksVersion = 2;  // version of the quantized block layouts

void check_numbers(const gguf::TensorInfo& info, const at::Tensor& numbers) {
  const double largest = numbers.abs().max().item<double>();
  if (!(largest <= ops::kLargestInBlocks) && info.type != ops::GgufType::kF32) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{} contains {}, but {} supports at most {}",
            info.name,
            largest,
            ops::layout_of(info.type).name,
            ops::kLargestInBlocks),
        "this model cannot be written as GGUF; if its training diverged, export an earlier "
        "checkpoint");
  }
}

}  // namespace

std::vector<std::string> save_gguf(
    const std::filesystem::path& path,
    const MergedWeights& weights,
    gguf::FileType type,
    const text::Tokenizer* tokenizer) {
  const model::ModelConfig& config = weights.config();
  gguf::Metadata metadata = gguf::model_metadata(config);
  std::vector<std::string> notes = gguf::notes_of(config);
  const std::vector<gguf::Tensor> tensors = gguf::tensors_of(config, type, notes);
  metadata.insert(
      metadata.begin() + 1,
      {{"general.type", "model"},
       {"general.name", path.stem().string()},
       {"general.file_type", static_cast<uint32_t>(type)},
       {"general.quantization_version", kBlocksVersion}});
  for (auto& entry : gguf::tokenizer_metadata(
           tokenizer, config, model::stop_tokens(weights.generation(), config), notes)) {
    metadata.push_back(std::move(entry));
  }
  std::vector<gguf::TensorInfo> infos;
  for (const gguf::Tensor& tensor : tensors) {
    infos.push_back(tensor.info);
  }
  const gguf::Header header = gguf::encode_header(metadata, infos);
  const gguf::Values values = [&](const auto& layer, const auto& parameter) {
    return weights.values(layer, parameter);
  };
  if (path.has_parent_path()) {
    create_folders(path.parent_path());
  }
  replace_file(path, [&](File& file) {
    file.write_at(0, std::as_bytes(std::span(header.bytes)));
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor numbers = tensors[i].numbers(values);
      check_numbers(tensors[i].info, numbers);
      const at::Tensor bytes = ops::to_blocks(numbers, tensors[i].info.type);
      file.write_at(
          header.offsets[i],
          {static_cast<const std::byte*>(bytes.const_data_ptr()),
           static_cast<size_t>(bytes.numel())});
    }
    file.resize(header.file_size);
  });
  return notes;
}

}  // namespace lockstep::train
