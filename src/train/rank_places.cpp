#include "train/rank_places.h"

#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/pulse.h"
#include "watch/record/ranks.h"

namespace lockstep::train {

RankPlaces::RankPlaces(Job& job, World& world) {
  Pulse* const told = pulse();
  watch::RankPlace place{world.rank(), watch::own_host(), ::getpid(), {}};
  if (told != nullptr) {
    if (world.size() > 1) {
      told->set_coordinate(job.axes->mesh().coordinate(world.rank()).text());
    }
    place.pulse = told->path();
  }
  const std::vector<std::string> lines =
      comm::gather_strings(world.communicator, watch::to_json(place));
  if (!world.is_first() || told == nullptr) {
    return;
  }
  try {
    watch::write_ranks(job.config.training.output_dir, lines);
    folder_ = job.config.training.output_dir;
  } catch (const Error& error) {
    log_warning("the run's ranks cannot be watched from outside: {}", error.message());
  }
}

RankPlaces::~RankPlaces() {
  if (!folder_.empty()) {
    watch::remove_ranks(folder_);
  }
}

}  // namespace lockstep::train
