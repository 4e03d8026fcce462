#include "model/family.h"

#include <array>

namespace lockstep::model {

std::span<const FamilyKeys> all_families() {
  static const std::array families = {
      gpt2_family(),
      llama_family(),
      mistral_family(),
      qwen2_family(),
      qwen3_family(),
      t5_family(),
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
