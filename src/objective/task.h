// Training task: the model's head, the objective and the reference model.
#pragma once

#include <memory>

#include "model/head.h"
#include "objective/objectives.h"
#include "objective/reference.h"

namespace lockstep::objective {

/// Defaults to language modeling.
struct Task {
  model::HeadSpec head;
  ObjectivePointer objective = cross_entropy();
  std::shared_ptr<Reference> reference;  // null if the objective does not use one
};

}  // namespace lockstep::objective
