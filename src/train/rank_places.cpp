// Writes the file with the location of each rank to the run folder.
#include "train/rank_places.h"

#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/rank_status.h"
#include "watch/record/ranks.h"

namespace lockstep::train {

RankPlaces::RankPlaces(Job& job, RankContext& rank_context) {
  RankStatus* const told = rank_status();
  watch::RankPlace place{rank_context.rank(), watch::own_host(), ::getpid(), {}};
  if (told != nullptr) {
    if (rank_context.size() > 1) {
      told->set_coordinate(job.axes->mesh().coordinate(rank_context.rank()).text());
    }
    place.rank_status = told->path();
  }
  const std::vector<std::string> lines =
      comm::gather_strings(rank_context.communicator, watch::to_json(place));
  if (!rank_context.is_first() || told == nullptr) {
    return;
  }
  try {
    watch::write_ranks(job.config.training.output_dir, lines);
    folder_ = job.config.training.output_dir;
  } catch (const Error& error) {
    log_warning("the run's ranks cannot be inspected from outside: {}", error.message());
  }
}

RankPlaces::~RankPlaces() {
  if (!folder_.empty()) {
    watch::remove_ranks(folder_);
  }
}

}  // namespace lockstep::train
