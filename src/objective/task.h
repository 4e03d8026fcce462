// What a model is trained for: its head, what the head's scores are worth, and what they are
// compared to.
#pragma once

#include <memory>

#include "model/head.h"
#include "objective/objectives.h"
#include "objective/reference.h"

namespace lockstep::objective {

/// Language modelling, where nothing else is said.
struct Task {
  model::HeadSpec head;
  ObjectivePointer objective = cross_entropy();
  std::shared_ptr<Reference> reference;  // null: the objective reads none
};

}  // namespace lockstep::objective
