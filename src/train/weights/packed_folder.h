// Reads and writes model folders whose linears are packed by bitsandbytes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/model_folder.h"
#include "checkpoint/pieces.h"
#include "model/source.h"
#include "nn/packed.h"

namespace lockstep::train {

/// Packed linears of a folder. They are detected by their tensors, not by quantization_config. The
/// constructor checks all tensors and throws Error (kData) if one is invalid.
class PackedFolder {
 public:
  explicit PackedFolder(const model::ModelSource& source);

  const nn::Packing& packing() const { return packing_; }
  /// Returns true if the weight of the model is packed.
  bool holds(const std::string& weight) const { return linears_.count(weight) > 0; }
  /// Returns true if the tensor in the files belongs to a packed weight.
  bool owns(const std::string& tensor) const { return tensors_.count(tensor) > 0; }
  /// Returns a packed weight. `weight` is its name in the model. The codes are a view of the mapped
  /// file and are only valid during the lifetime of this object.
  ops::PackedMatrix read(const std::string& weight) const;

 private:
  struct Linear {
    std::string stored;  // name of the weight in the files
    ops::PackedFormat format;
    int64_t out = 0, in = 0;
    float nested_offset = 0;
  };
  void open_4_bits(Linear& linear, const std::string& state);
  void open_8_bits(Linear& linear);
  /// Throws unless the tensor exists and has this type and number of elements.
  void check(const std::string& name, at::ScalarType type, int64_t elements);

  checkpoint::ModelFolder files_;
  std::map<std::string, Linear> linears_;  // by the weight's name in the model
  std::set<std::string> tensors_;          // tensor names in the files
  nn::Packing packing_;
};

/// Returns the tensors of a packed weight in bitsandbytes' format, for the file group "model".
/// `prefix` is the name of the layer.
std::vector<checkpoint::Piece> packed_pieces(
    const std::string& prefix, const ops::PackedMatrix& matrix);

}  // namespace lockstep::train
