// A model folder whose linears bitsandbytes packed, and the writing of one.
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

/// The packed linears of a folder, whatever its quantization_config says: those whose tensors are
/// packed. Everything of them is checked when it is opened: Error (kData).
class PackedFolder {
 public:
  explicit PackedFolder(const model::ModelSource& source);

  const nn::Packing& packing() const { return packing_; }
  /// Whether a weight of the model is packed.
  bool holds(const std::string& weight) const { return linears_.count(weight) > 0; }
  /// Whether a tensor of the files, by its name there, is a part of a packed weight.
  bool owns(const std::string& tensor) const { return tensors_.count(tensor) > 0; }
  /// A packed weight, by the model's name; its codes are a view of the mapped file, for as long as
  /// this.
  ops::PackedMatrix read(const std::string& weight) const;

 private:
  struct Linear {
    std::string stored;  // the weight's name in the files
    ops::PackedFormat format;
    int64_t out = 0, in = 0;
    float nested_offset = 0;
  };
  void open_4_bits(Linear& linear, const std::string& state);
  void open_8_bits(Linear& linear);
  /// A tensor beside a weight: there, of this type and this many elements.
  void check(const std::string& name, at::ScalarType type, int64_t elements);

  checkpoint::ModelFolder files_;
  std::map<std::string, Linear> linears_;  // by the model's name of the weight
  std::set<std::string> tensors_;          // of the files
  nn::Packing packing_;
};

/// The tensors of a packed weight as bitsandbytes saves them, to be saved in the file group
/// "model"; `prefix` is the layer's.
std::vector<checkpoint::Piece> packed_pieces(
    const std::string& prefix, const ops::PackedMatrix& matrix);

}  // namespace lockstep::train
