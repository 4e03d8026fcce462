// gpt-oss's experts as its first files hold them: MXFP4 (Open Compute Project, "Microscaling
// Formats Specification", 2023, section 5.4), numbers of 4 bits with a power of two for each 32 of
// a row. They are unpacked where they are read, without loss in bfloat16.
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
  /// Those of the parameters whose stack is missing in the folder, and packed there as NAME_blocks
  /// [E, out, in / 32, 16] and NAME_scales [E, out, in / 32]. Error (kData): of another shape.
  Mxfp4Experts(
      const checkpoint::ModelFolder& folder, const std::vector<model::ParameterSpec>& parameters);

  bool holds(const std::string& parameter) const { return packed_.count(parameter) > 0; }
  /// Whether a tensor of the files, by its name there, is a part of a packed one.
  bool owns(const std::string& tensor) const { return tensors_.count(tensor) > 0; }
  /// Fills `out`, as ModelFolder::read. The files must still be open.
  void read(
      const checkpoint::ModelFolder& folder,
      const std::string& parameter,
      int64_t begin,
      const at::Tensor& out) const;

 private:
  struct Packed {
    std::string blocks, scales;  // the names in the files
    int64_t in = 0, out = 0;     // the parameter is [in, out]
    int64_t first_row = 0;       // of the stack's rows, of which each expert has `out`
  };
  std::map<std::string, Packed> packed_;  // by the parameter's name
  std::set<std::string> tensors_;
};

}  // namespace lockstep::train
