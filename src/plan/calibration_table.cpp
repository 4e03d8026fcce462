// Made by `lockstep calibrate --fit RUNS.csv --write FILE` from a fifth of the published runs
// (which: see lent_to_calibration in plan/validate.h). Do not edit: run it again.
#include "plan/calibration.h"

namespace lockstep::plan {

const Calibration& calibration() {
  static const Calibration table = {
      .physics =
          {
              .product_fill = 63.73,
              .misaligned = 0.7872,
              .kernel_seconds = 3.411e-06,
              .host_seconds = 0.003815,
              .link_efficiency = 0.6322,
              .network_efficiency = 0.6574,
              .link_latency = 4.078e-06,
              .network_latency = 1.51e-05,
              .early_libraries = 0.8273,
              .straggler = 0.008175,
              .contention = 0.1734,
              .step_seconds = 0.004546,
          },
      .devices =
          {
              {"a100-80gb",
               {.matrix16 = 0.7581, .matrix8 = 0.5535, .attention = 0.3643, .memory = 0.95}},
              {"gb200",
               {.matrix16 = 0.6782, .matrix8 = 0.5492, .attention = 0.3473, .memory = 0.724}},
              {"h100-80gb",
               {.matrix16 = 0.7552, .matrix8 = 0.6198, .attention = 0.2048, .memory = 0.95}},
              {"h100-96gb-500w",
               {.matrix16 = 0.6762, .matrix8 = 0.5102, .attention = 0.2745, .memory = 0.6624}},
              {"l40s",
               {.matrix16 = 0.6127, .matrix8 = 0.5452, .attention = 0.3977, .memory = 0.799}},
              {"rtx-4090",
               {.matrix16 = 0.97, .matrix8 = 0.8142, .attention = 0.7508, .memory = 0.95}},
              {"rtx-pro-6000",
               {.matrix16 = 0.75, .matrix8 = 0.7828, .attention = 0.6194, .memory = 0.95}},
              {"v100-32gb",
               {.matrix16 = 0.7115, .matrix8 = 0.5502, .attention = 0.3984, .memory = 0.5}},
          },
  };
  return table;
}

}  // namespace lockstep::plan
