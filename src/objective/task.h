// Training task: head of the model, objective, and reference model.
#pragma once

#include <memory>

#include "model/head.h"
#include "objective/objectives.h"
#include "objective/reference.h"

namespace lockstep::objective {

/// The default is language modeling.
struct Task {
  model::HeadSpec head;
  ObjectivePointer objective = cross_entropy();
  std::shared_ptr<Reference> reference;  // null if the objective does not use one
};

}  // namespace lockstep::objective
