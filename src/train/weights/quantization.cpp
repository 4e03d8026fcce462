// Quantizes the weights of a run.
#include "train/weights/quantization.h"

#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "checkpoint/model_folder.h"
#include "model/description.h"
#include "train/weights/packed_folder.h"

namespace lockstep::train {
namespace {

using model::Quantization;

/// Returns the type from which a weight is quantized: its type in the files, or float32 if there
/// are no files.
at::ScalarType type_in(const checkpoint::ModelFolder* files, const std::string& name) {
  const auto stored = files == nullptr ? std::nullopt : files->stored_name(name);
  const auto type =
      stored ? checkpoint::scalar_type(files->files().tensor(*stored).dtype) : std::nullopt;
  return type == at::kBFloat16 || type == at::kHalf ? *type : at::kFloat;
}

/// Returns the packing of the dense model's linears.
nn::Packing packing_of(
    const Quantization& asked,
    const model::ModelConfig& config,
    const model::ModelSource& source,
    const std::set<std::string>& trained) {
  std::optional<checkpoint::ModelFolder> files;
  if (source.has_weights) {
    files.emplace(source.folder);
  }
  nn::Packing packing;
  for (const std::string& prefix : model::packed_linears(asked, config)) {
    const std::string weight = prefix + ".weight";
    if (trained.count(weight) == 0) {
      ops::PackedFormat format = format_of(asked);
      format.type = type_in(files ? &*files : nullptr, weight);
      packing[prefix] = format;
    }
  }
  return packing;
}

/// Throws if the requested format differs from that of a packed folder, which cannot be changed.
void check_agreement(
    const Quantization& there, const std::optional<Quantization>& asked, const std::string& name) {
  if (!asked) {
    return;
  }
  const bool agree =
      asked->bits == there.bits &&
      (there.bits == 8 || (asked->type == there.type && asked->double_quant == there.double_quant));
  if (!agree) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} contains weights in {}, but {} are requested",
            name,
            text_of(there),
            text_of(*asked)),
        "remove the quantization keys, or use the unpacked model");
  }
}

void refuse_trained(const PackedFolder& folder, const std::set<std::string>& trained) {
  for (const std::string& name : trained) {
    if (folder.holds(name)) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{} is packed and cannot be trained", name),
          "remove it from lora.modules_to_save, or use the unpacked model");
    }
  }
}

}  // namespace

std::string text_of(const Quantization& quantization) {
  return quantization.bits == 8 ? "8 bits"
                                : fmt::format(
                                      "4 bits ({}{})",
                                      model::name_of(quantization.type),
                                      quantization.double_quant ? ", double quantization" : "");
}

ops::PackedFormat format_of(const Quantization& quantization) {
  ops::PackedFormat format;
  if (quantization.bits == 8) {
    format.kind = ops::PackedKind::kInt8;
    return format;
  }
  format.kind =
      quantization.type == Quantization::Type::kNf4 ? ops::PackedKind::kNf4 : ops::PackedKind::kFp4;
  format.block_size = quantization.block_size;
  format.is_nested = quantization.double_quant;
  return format;
}

std::optional<Quantization> quantization_of(const QuantizationFlags& flags) {
  if (flags.bits == 0) {
    return std::nullopt;
  }
  config::QuantizationSection section;
  section.bits = flags.bits;
  section.type = flags.type;
  section.double_quant = flags.double_quant;
  return quantization_of(section);
}

void request_packing(
    parallel::ModelSpec& spec,
    const std::optional<Quantization>& asked,
    const model::ModelSource& source,
    const std::set<std::string>& trained) {
  parallel::PackedSource values;
  nn::Packing packing;
  if (source.has_weights && source.config.quantization) {
    check_agreement(*source.config.quantization, asked, source.name);
    const auto folder = std::make_shared<const PackedFolder>(source);
    refuse_trained(*folder, trained);
    packing = folder->packing();
    values = [folder](const std::string& name) { return folder->read(name); };
  } else if (asked) {
    packing = packing_of(*asked, spec.config, source, trained);
    values = parallel::quantized(spec.config, packing, spec.fill);
    spec.config.quantization = asked;
  } else {
    return;
  }
  spec.fill = parallel::fill_packed(spec.config, packing, std::move(values), std::move(spec.fill));
  spec.packing = std::make_shared<const nn::Packing>(std::move(packing));
}

void check_trainable(const std::optional<Quantization>& packed, bool has_adapters) {
  if (packed && !has_adapters) {
    throw Error(
        ErrorKind::kConfig,
        "the model's weights are packed and cannot be trained",
        "train adapters: lora.r=16 lora.target_modules=all-linear; or train a 16-bit model without "
        "quantization keys");
  }
}

}  // namespace lockstep::train
