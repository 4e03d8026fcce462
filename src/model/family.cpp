// Table of the model families.
#include "model/family.h"

#include <array>

namespace lockstep::model {

std::span<const FamilyKeys> all_families() {
  static const std::array families = {
      gpt2_family(),      llama_family(),      mistral_family(),  qwen2_family(),
      qwen3_family(),     t5_family(),         mixtral_family(),  qwen3_moe_family(),
      qwen2_moe_family(), olmoe_family(),      gpt_oss_family(),  gemma_family(),
      gemma2_family(),    gemma3_family(),     phi3_family(),     gpt_neox_family(),
      gpt_neo_family(),   olmo2_family(),      olmo3_family(),    glm_family(),
      glm4_family(),      chatglm_family(),    glm4_moe_family(), bert_family(),
      roberta_family(),   distilbert_family(),
  };
  return families;
}

const FamilyKeys& keys_of(Family family) {
  return all_families()[static_cast<size_t>(family)];
}

std::string_view family_name(Family family) {
  return keys_of(family).name;
}

}  // namespace lockstep::model
