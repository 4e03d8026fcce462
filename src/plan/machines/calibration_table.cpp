// Made by `published_runs RUNS.csv --fit --write FILE` from a fifth of the published runs (which:
// see lent_to_calibration in bench/published_runs/validate.h). Do not edit: run it again.
#include "plan/machines/calibration.h"

namespace lockstep::plan {

const Calibration& calibration() {
  static const Calibration table = {
      .physics =
          {
              .tile_seconds = 1.057e-06,
              .wave_waste = 0.5581,
              .misaligned = 0.4012,
              .unaligned = 0.4991,
              .kernel_seconds = 3.442e-06,
              .host_seconds = 0.01401,
              .message_seconds = 0.0002129,
              .power_exponent = 0.4659,
              .block_scaled = 0.9545,
              .tensor_exposed = 0.4306,
              .link_efficiency = 0.6833,
              .network_efficiency = 0.7305,
              .link_latency = 3.289e-06,
              .network_latency = 1.033e-05,
              .early_libraries = 0.8584,
              .straggler = 0.0103,
              .contention = 0.1893,
              .overlap_power = 5.925,
              .step_seconds = 0.004003,
          },
      .devices =
          {
              {"a100-80gb",
               {.matrix16 = 0.7718, .matrix8 = 0.5494, .attention = 0.5634, .memory = 0.9487}},
              {"gb200", {.matrix16 = 0.6302, .matrix8 = 0.6, .attention = 0.2, .memory = 0.7814}},
              {"h100-80gb",
               {.matrix16 = 0.78, .matrix8 = 0.6141, .attention = 0.3372, .memory = 0.6587}},
              {"l40s",
               {.matrix16 = 0.5974, .matrix8 = 0.5545, .attention = 0.3989, .memory = 0.7841}},
              {"rtx-4090",
               {.matrix16 = 0.9976, .matrix8 = 0.8385, .attention = 0.5965, .memory = 0.9839}},
              {"rtx-pro-6000",
               {.matrix16 = 0.764, .matrix8 = 0.7726, .attention = 0.6033, .memory = 1}},
              {"v100-32gb",
               {.matrix16 = 0.8209, .matrix8 = 0.5508, .attention = 0.401, .memory = 0.5823}},
          },
      .systems =
          {
              "DeepSpeed ZeRO-3 (run by Megatron authors)",
              "LLM.Q (C++20/CUDA)",
              "Megatron-Bridge 25.09 (Pre-Training)",
              "Megatron-Bridge 25.11 (Pre-Training)",
              "Megatron-Core r0.8.0",
              "Megatron-DeepSpeed (BLOOM topology sweep)",
              "Megatron-DeepSpeed MT-NLG",
              "Megatron-LM (DLPerf, 2021)",
              "Megatron-LM (SC21 PTD-P)",
              "Megatron-LM 2020",
              "Megatron-LM PTD-P",
              "Megatron-LM SP+selective",
              "OneFlow-GPT",
              "llm-foundry (MPT, Composer FSDP)",
              "llm.c",
              "torchtitan",
              "torchtitan compile",
              "torchtitan compile vanillaTP",
              "torchtitan compile+asyncTP",
              "zero-bubble-PP (Megatron fork)",
          },
      .lent =
          {
              "18526b0f57e64edc", "9f243d3717b39960", "bcd99ee66ffd9640", "131593224ae838af",
              "c0749d42470a5205", "8fe2d40b5902bb2b", "51f6e75c497c90d2", "f09897076042254a",
              "76cfb84d1a03ad54", "f0c4e1cb471e6f7a", "366d00b92d0a2df6", "0b5c49f8fba445f3",
              "6cf37cf16f03a455", "56f9f87149a58ec4", "77c7c61f4d52b086", "c76f22153d12459f",
              "f48943ed02fba54d", "fef945e2223c623e", "8b50506af8e3fe92", "736347c9cd1f69bd",
              "16ca7acff1b548e1", "09c395fb37ce9aac", "37dd3679a128d298", "1b57dc1527eda797",
              "eeff5b8e242bbb2c", "2d6f582a8aa7d0b1", "d61b320cd116720e", "8f965b7b8299ed1c",
              "a8b68b2c27bef4b1", "402cd1b062a84677", "e3c012111735afc1", "e36f7e3dbfeb056b",
              "bdf98c4506fecabe", "3c34af15536d0d98", "953e61ae0af19cb8", "21e2af3f2b3e1673",
              "acf2a9f531d6026e", "94bafff2d5c934e6", "98da804dbda0e423", "e24bc7bc4f3608d5",
              "a3bf564ff3354937", "341e2d3e88c61031", "c611dfccd2da35a6", "111995722fcef84e",
              "4f6d0ed34512e628", "919387cc6b9998b8", "ac4769bfcbc4758d", "903d76a861baae01",
              "b0d7b4e7c0630874", "3e628db1a75407f6", "9c67e5a023b9b239", "c7cafe18bc2ee7ef",
              "d902727f158ad9c1", "34092e34cf906a89", "9ce3e27e95a236e2", "8b8e233286d8129f",
              "7fcd53731ff2431f", "5e5242eb35eca0c8", "9dee6e20c481598f", "19fb4c271f93c69f",
              "95754991df06f0e4", "385ec393fce27531", "bbd7e9424e72a2b5", "ca4b741ebba41bf1",
              "867a03f6b9bb4446", "e88d23faf3abfecb", "e56f233baa56eaf4", "fd8ed3507cde68c6",
              "8cc4224fe2704192", "3a5d07b98d682c9e", "a34f4142d1687de4",
          },
  };
  return table;
}

}  // namespace lockstep::plan
