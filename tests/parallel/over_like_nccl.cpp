// Runs every test of this program on a backend with NCCL's rules if
// LOCKSTEP_TEST_BACKEND=like-nccl.
#include <cstdlib>
#include <memory>
#include <string_view>

#include "comm/like_nccl.h"

namespace lockstep::parallel {
namespace over_like_nccl {

const std::unique_ptr<comm::UseLikeNccl> kBackend = [] {
  const char* const name = std::getenv("LOCKSTEP_TEST_BACKEND");
  return name != nullptr && std::string_view(name) == "like-nccl"
             ? std::make_unique<comm::UseLikeNccl>()
             : nullptr;
}();

}  // namespace over_like_nccl
}  // namespace lockstep::parallel
