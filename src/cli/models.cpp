// Lists the model presets and families from the tables that the program itself uses.
#include "cli/models.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "model/adapters.h"
#include "model/family.h"
#include "model/model_config.h"
#include "model/quantization.h"
#include "plan/workload/job.h"
#include "start/parse.h"
#include "train/gguf/families.h"

namespace lockstep::cli {
namespace {

struct Preset {
  std::string name;
  model::ModelConfig config;
  double parameters = 0, active = 0;  // active: those that a token uses
};

/// Capabilities of a model family, determined with its first preset.
struct Capabilities {
  std::string family, kind;
  std::vector<std::string> lora_targets;  // default target modules
  bool adapts = false, quantizes = false, classifies = false, generates = false;
  bool shares_experts = false;  // expert parallelism
  std::string gguf;             // architecture in llama.cpp; empty: not supported
};

std::vector<Preset> read_presets() {
  std::vector<Preset> presets;
  for (const std::string& name : model::preset_names()) {
    Preset preset{name, model::preset(name)};
    preset.parameters = static_cast<double>(plan::count_parameters(preset.config).total());
    preset.active = preset.config.experts.count > 0 ? plan::active_parameters(preset.config)
                                                    : preset.parameters;
    presets.push_back(std::move(preset));
  }
  return presets;
}

/// Returns a model of the family: its first preset, otherwise one with the default sizes.
model::ModelConfig example_of(const model::FamilyKeys& family, const std::vector<Preset>& presets) {
  const auto found = std::ranges::find_if(
      presets, [&](const Preset& preset) { return preset.config.family == family.family; });
  return found != presets.end()
             ? found->config
             : model::parse_model_config(
                   fmt::format(R"({{"model_type": "{}"}})", family.name), family.name);
}

/// Returns true unless the function refuses the model.
bool accepts(const std::function<void()>& use) {
  try {
    use();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) {
      throw;
    }
    return false;
  }
}

Capabilities capabilities_of(const model::FamilyKeys& family, const model::ModelConfig& config) {
  Capabilities can;
  can.family = family.name;
  can.kind = config.is_encoder_decoder() ? "encoder-decoder"
             : config.bidirectional      ? "encoder"
             : config.experts.count > 0  ? "mixture of experts"
                                         : "decoder";
  can.lora_targets.assign(family.lora_targets.begin(), family.lora_targets.end());
  can.adapts = accepts([&] {
    (void)model::resolve_adapters(model::LoraConfig{}, config, model::AdapterOrigin::kNew);
  });
  can.quantizes = accepts([&] { (void)model::packed_linears(model::Quantization{}, config); });
  can.classifies = accepts(
      [&] { (void)model::with_head(config, {model::HeadSpec::Kind::kClassifier, {"no", "yes"}}); });
  can.generates = !config.bidirectional;
  can.shares_experts = config.experts.count > 0;
  if (!accepts([&] { can.gguf = train::gguf::architecture_of(config); })) {
    can.gguf.clear();
  }
  return can;
}

nlohmann::ordered_json to_json(const Preset& preset) {
  return {
      {"name", preset.name},
      {"family", model::family_name(preset.config.family)},
      {"parameters", std::llround(preset.parameters)},
      {"active_parameters", std::llround(preset.active)}};
}

nlohmann::ordered_json to_json(const Capabilities& can) {
  return {
      {"family", can.family},
      {"kind", can.kind},
      {"lora", can.adapts},
      {"lora_targets", can.lora_targets},
      {"quantization", can.quantizes},
      {"expert_parallelism", can.shares_experts},
      {"classification", can.classifies},
      {"generation", can.generates},
      {"gguf", can.gguf.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(can.gguf)}};
}

std::string size_text(double parameters) {
  return parameters >= 1e9 ? fmt::format("{:.2f} B", parameters / 1e9)
                           : fmt::format("{:.1f} M", parameters / 1e6);
}

std::string presets_table(const std::vector<Preset>& presets) {
  std::string text = fmt::format("{:<22} {:<14} {:>11}\n", "preset", "family", "parameters");
  for (const Preset& preset : presets) {
    text += fmt::format(
        "{:<22} {:<14} {:>11}{}\n",
        preset.name,
        model::family_name(preset.config.family),
        size_text(preset.parameters),
        preset.active < preset.parameters
            ? fmt::format("  ({} active per token)", size_text(preset.active))
            : "");
  }
  return text;
}

std::string families_table(const std::vector<Capabilities>& families) {
  std::string text = fmt::format(
      "{:<14} {:<19} {:<5} {:<9} {:<16} {:<15} {:<9} {}\n",
      "family",
      "kind",
      "LoRA",
      "4/8 bits",
      "expert parallel",
      "classification",
      "generate",
      "GGUF");
  const auto word = [](bool works) { return works ? "yes" : "no"; };
  for (const Capabilities& can : families) {
    text += fmt::format(
        "{:<14} {:<19} {:<5} {:<9} {:<16} {:<15} {:<9} {}\n",
        can.family,
        can.kind,
        word(can.adapts),
        word(can.quantizes),
        word(can.shares_experts),
        word(can.classifies),
        word(can.generates),
        can.gguf.empty() ? "no" : can.gguf);
  }
  return text;
}

}  // namespace

int run_models(std::vector<std::string> arguments) {
  bool json = false;
  CLI::App app(
      "List the presets for model.preset, and the model families (model_type of config.json) that "
      "can be trained.",
      "lockstep models");
  app.add_flag("--json", json, "Print a JSON object only");
  if (start::parse(app, std::move(arguments)) == start::Parsed::kHelpShown) {
    return 0;
  }
  const std::vector<Preset> presets = read_presets();
  std::vector<Capabilities> families;
  for (const model::FamilyKeys& family : model::all_families()) {
    families.push_back(capabilities_of(family, example_of(family, presets)));
  }
  if (json) {
    nlohmann::ordered_json all{
        {"presets", nlohmann::ordered_json::array()},
        {"families", nlohmann::ordered_json::array()}};
    for (const Preset& preset : presets) {
      all["presets"].push_back(to_json(preset));
    }
    for (const Capabilities& can : families) {
      all["families"].push_back(to_json(can));
    }
    fmt::print("{}\n", all.dump());
    return 0;
  }
  fmt::print(
      "Presets, which model.preset={} trains from random weights\n\n{}\nFamilies, which model.path "
      "loads from a Hugging Face folder. All can be trained with every\nkind of data, tensor, "
      "context and pipeline parallelism.\n\n{}",
      presets.front().name,
      presets_table(presets),
      families_table(families));
  return 0;
}

}  // namespace lockstep::cli
