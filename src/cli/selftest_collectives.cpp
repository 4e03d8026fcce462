// Implements the self-tests of collectives and messages.
#include <algorithm>
#include <exception>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/format.h"
#include "cli/selftest_checks.h"
#include "comm/split.h"

namespace lockstep::cli {
namespace {

using at::Tensor;

constexpr int kMostInPairs = 16;  // maximum number of ranks for tests of all pairs

void expect_all(const Tensor& tensor, double value) {
  if (!tensor.eq(value).all().item<bool>()) {
    throw std::runtime_error(fmt::format("not all elements are {}", value));
  }
}

/// Tests the communication of a group and measures its bandwidth.
class Collectives {
 public:
  Collectives(comm::Communicator& group, c10::Device device)
      : group_(group),
        ranks_(group.size()),
        own_(group.rank() + 1.0) {
    const int64_t each = int64_t{1} << (device.is_cpu() ? 18 : 22);
    const auto options = at::TensorOptions(device).dtype(at::kFloat);
    part_ = at::empty({each}, options);
    whole_ = at::empty({ranks_, each}, options);
    other_ = at::empty_like(whole_);
    part_bytes_ = static_cast<double>(part_.nbytes());
    ring_bytes_ = part_bytes_ * static_cast<double>(ranks_ - 1);
  }

  struct Kind {
    const char* name;
    double bytes;       // bytes sent by each rank
    const Tensor* out;  // result of the operation
    std::function<void()> run, look;
  };
  std::vector<Kind> kinds() {
    const double sum = static_cast<double>(ranks_ * (ranks_ + 1)) / 2;
    const auto rank = static_cast<int64_t>(group_.rank());
    const auto next = static_cast<int>((rank + 1) % ranks_),
               previous = static_cast<int>((rank + ranks_ - 1) % ranks_);
    return {
        {"all-reduce",
         2 * ring_bytes_,
         &whole_,
         [this] { group_.all_reduce(whole_.fill_(own_)).wait(); },
         [this, sum] { expect_all(whole_, sum); }},
        {"all-gather",
         ring_bytes_,
         &whole_,
         [this] { group_.all_gather(whole_, part_.fill_(own_)).wait(); },
         [this] {
           for (int64_t r = 0; r < ranks_; ++r) {
             expect_all(whole_[r], static_cast<double>(r + 1));
           }
         }},
        {"reduce-scatter",
         ring_bytes_,
         &part_,
         [this] { group_.reduce_scatter(part_, whole_.fill_(own_)).wait(); },
         [this, sum] { expect_all(part_, sum); }},
        {"broadcast",
         part_bytes_,
         &part_,
         [this] { group_.broadcast(part_.fill_(own_), static_cast<int>(ranks_ - 1)).wait(); },
         [this] { expect_all(part_, static_cast<double>(ranks_)); }},
        {"all-to-all",
         ring_bytes_,
         &other_,
         [this] { group_.all_to_all(other_, whole_.fill_(own_)).wait(); },
         [this] { expect_all(other_[0], 1); }},
        {ranks_ == 2 ? "to each other" : "around the ring",
         part_bytes_,
         &whole_,
         [this, next, previous] {
           using Direction = comm::P2p::Direction;
           const std::vector<comm::P2p> both{
               {Direction::kSend, part_.fill_(own_), next},
               {Direction::kReceive, whole_[0], previous}};
           group_.exchange(both).wait();
         },
         [this, previous] { expect_all(whole_[0], previous + 1.0); }}};
  }

  /// Returns the number of bytes per second that each rank sends, in the best of several rounds.
  /// Throws if the first result is wrong.
  double measure(const Kind& kind) {
    kind.run();
    kind.look();
    group_.barrier();
    double best = 0;
    for (int round = 0; round < 4; ++round) {
      const double began = seconds_now();
      kind.run();
      kind.out->view({-1})[0].item<float>();  // waits for the GPU
      best = std::max(best, kind.bytes / (seconds_now() - began));
    }
    return best;
  }

 private:
  comm::Communicator& group_;
  int64_t ranks_;
  double own_;
  Tensor part_, whole_, other_;
  double part_bytes_ = 0, ring_bytes_ = 0;
};

/// Returns a rank's partner in a round of a round-robin tournament. If the rank pauses, returns the
/// rank itself.
int partner_of(int rank, int round, int ranks) {
  const int even = ranks + ranks % 2, last = even - 1;
  const int across = ((2 * round - rank) % last + last) % last;
  const int found = rank == last ? round : across == rank ? last : across;
  return found < ranks ? found : rank;
}

/// Returns the results of a rank and its partner as text: bandwidth or error for each kind.
std::string found_with(train::RankContext& rank_context, int other) {
  nlohmann::json found = nlohmann::json::array();
  const int low = std::min(rank_context.rank(), other), high = std::max(rank_context.rank(), other);
  if (low == high) {
    return found.dump();
  }
  comm::Communicator pair =
      comm::split(rank_context.communicator, {low, high}, "selftest", rank_context.group);
  Collectives collectives(pair, rank_context.device);
  for (const Collectives::Kind& kind : collectives.kinds()) {
    nlohmann::json row{
        {"low", low}, {"high", high}, {"kind", kind.name}, {"speed", 0.0}, {"error", ""}};
    try {
      row["speed"] = collectives.measure(kind);
    } catch (const std::exception& error) {
      row["error"] = fmt::format("rank {}: {}", rank_context.rank(), error.what());
    }
    found.push_back(std::move(row));
  }
  return found.dump();
}

void check_pairs(train::RankContext& rank_context, std::vector<Check>& checks) {
  const int ranks = rank_context.size(), rounds = ranks + ranks % 2 - 1;
  for (int round = 0; round < rounds; ++round) {
    const std::string mine =
        found_with(rank_context, partner_of(rank_context.rank(), round, ranks));
    const auto texts = comm::gather_strings(rank_context.communicator, mine);
    std::vector<nlohmann::json> found;
    for (const std::string& text : texts) {
      found.push_back(nlohmann::json::parse(text));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const nlohmann::json& rows = found[static_cast<size_t>(rank)];
      for (size_t i = 0; i < rows.size() && rows[i].at("low").get<int>() == rank; ++i) {
        const int high = rows[i].at("high");
        const std::string kind = rows[i].at("kind"),
                          error =
                              rows[i].at("error").get<std::string>() +
                              found[static_cast<size_t>(high)][i].at("error").get<std::string>();
        checks.push_back(
            {"pairs",
             fmt::format("{}, ranks {} and {}", kind, rank, high),
             error.empty(),
             error,
             rows[i].at("speed").get<double>(),
             kind});
      }
    }
  }
}

}  // namespace

std::vector<Check> check_collectives(train::RankContext& rank_context) {
  std::vector<Check> checks;
  if (rank_context.size() == 1) {
    return checks;
  }
  Collectives collectives(rank_context.communicator, rank_context.device);
  for (const Collectives::Kind& kind : collectives.kinds()) {
    double speed = 0;
    checks.push_back(check_on_all_ranks(rank_context, "collectives", kind.name, [&] {
      speed = collectives.measure(kind);
      return std::string();
    }));
    checks.back().bytes_a_second = speed;
  }
  if (rank_context.size() <= kMostInPairs) {
    check_pairs(rank_context, checks);
  }
  return checks;
}

}  // namespace lockstep::cli
