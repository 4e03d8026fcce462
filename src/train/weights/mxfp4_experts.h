// MXFP4 expert weights of gpt-oss (Open Compute Project, "Microscaling Formats Specification",
// 2023, section 5.4). The format has 4-bit elements with one power-of-two scale per 32 elements of
// a row. The weights are unpacked when they are read, which is lossless in bfloat16.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/model_folder.h"
#include "model/description.h"

namespace lockstep::train {

class Mxfp4Experts {
 public:
  /// Finds the parameters whose stacked tensor the folder stores as NAME_blocks [E, out, in / 32,
  /// 16] and NAME_scales [E, out, in / 32]. Throws Error (kData) if the shapes differ.
  Mxfp4Experts(
      const checkpoint::ModelFolder& folder, const std::vector<model::ParameterSpec>& parameters);

  bool holds(const std::string& parameter) const { return packed_.count(parameter) > 0; }
  /// Returns true if the tensor in the files belongs to a packed parameter.
  bool owns(const std::string& tensor) const { return tensors_.count(tensor) > 0; }
  /// Fills `out` like ModelFolder::read. The files must still be open.
  void read(
      const checkpoint::ModelFolder& folder,
      const std::string& parameter,
      int64_t begin,
      const at::Tensor& out) const;

 private:
  struct Packed {
    std::string blocks, scales;  // tensor names in the files
    int64_t in = 0, out = 0;     // shape of the parameter: [in, out]
    int64_t first_row = 0;       // row of the stack; each expert has `out` rows
  };
  std::map<std::string, Packed> packed_;  // by parameter name
  std::set<std::string> tensors_;
};

}  // namespace lockstep::train
