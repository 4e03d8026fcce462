// Flat units. The parameters of a flat unit are gathered, reduced, updated and freed together and
// share one buffer for values and one for gradients. The ZeRO stage (Rajbhandari et al., 2020)
// determines how much of these buffers a rank stores:
//
//            values                  gradients               optimizer state
//   stage 0  whole                   whole                   whole
//   stage 1  whole                   whole                   this rank's shard
//   stage 2  whole                   shard                   shard
//   stage 3  shard                   shard                   shard
//
// A shard is one of `ranks` equal contiguous slices of the flat buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "optim/optimizer.h"
#include "parallel/offload/storage.h"

namespace lockstep::parallel {

using at::Tensor;
class ShardFile;

struct NamedParameter {
  std::string name;  // full Hugging Face name
  Tensor tensor;     // a leaf tensor, whose data is replaced by a view of the flat buffer
  optim::UpdateRule rule{};
  bool alone = false;  // the parameter has its own flat unit with an independent shard layout
  /// Additional ranks over which the gradient is summed; null: none.
  comm::Communicator* summed_over = nullptr;
  int64_t packed = 0;  // number of weights that are packed in the bytes; 0: not packed
  int64_t weights() const { return packed > 0 ? packed : tensor.numel(); }
};

/// Parameters that are used together, in order of use: the embedding, a block, or the head.
struct ParameterUnit {
  std::string name;
  std::vector<NamedParameter> parameters;
  /// Other units whose parameters this unit also reads: a tied head reads the embedding table.
  std::vector<size_t> also_uses = {};
  /// False if the unit's backward pass reads no parameters, as for an embedding.
  bool backward_reads_parameters = true;
};

/// Writes the initial values of elements [begin, begin + out.numel()) of a flattened parameter,
/// from a file or a random generator. Must give the same values on every rank. `out` is contiguous.
using ParameterSource = std::function<void(const std::string& name, int64_t begin, Tensor out)>;

struct FlatUnit {
  struct Entry {
    std::string name;
    Tensor parameter;               // its data is a view of `full`
    int64_t offset = 0, count = 0;  // position in the flat buffers
    optim::UpdateRule rule{};
  };
  std::string name;            // name of the unit, or names of the first and the last unit
  std::vector<Entry> entries;  // grouped by update rule
  bool trainable = true;       // false: the entries are frozen and have no gradients
  bool persistent = true;      // `full` is never freed
  bool replicated = true;      // every rank stores the whole unit: the shard is `full`
  bool alone = false;          // NamedParameter::alone: the summed gradient may be modified
                               // afterwards
  comm::Communicator* summed_over = nullptr;  // same for all entries
  int64_t lowest_unit = 0;                    // first unit that uses this flat unit; its gradients
                                              // are computed last
  int64_t weights = 0;                        // number of unpacked weights in all entries

  Tensor full;  // [size] values in the parameters' type
  /// [part] this rank's shard. A view of `full` if persistent; otherwise possibly in host memory or
  /// without allocated memory (shard_file.h).
  Tensor shard;
  Tensor gradient;          // [size]; stages 2 and 3: defined only while the backward pass fills it
  Tensor shard_gradient;    // [part] sum over the ranks; stages 0 and 1: a view of `gradient`
  int64_t shard_begin = 0;  // offset of the shard in `full`

  int64_t size() const { return full.numel(); }
  /// Returns the positions of the entries within the shard, one per entry in order. Segments may be
  /// empty.
  std::vector<optim::Segment> shard_layout() const;
  /// Zeroes the elements that belong to no parameter: after the last parameter and before aligned
  /// parameters.
  void clear_gaps(const Tensor& flat) const;
};

struct FlatOptions {
  int zero_stage = 0;
  int64_t rank = 0, ranks = 1;
  /// Stages 0 to 2: maximum size of a buffer shared by neighboring units. In stage 3 each unit has
  /// its own buffer.
  int64_t bucket_bytes = 0;
  /// Stage 3: parameters with fewer weights than this are not sharded and share one buffer.
  int64_t persistence_threshold = 0;
  /// Every parameter and every shard starts at a multiple of this number of elements.
  int64_t alignment = 1;
  /// Stage 3: store the shards in host memory, or in this file.
  bool offload_parameters = false;
  ShardFile* file = nullptr;
  /// Type of the gradient buffers; nullopt: the parameters' type.
  std::optional<at::ScalarType> gradient_type{};
  /// Provides the initial values; this rank reads only its own shards.
  ParameterSource source{};
  /// Used without a source: makes the parameters' values equal on all ranks, one flat unit at a
  /// time.
  std::function<void(const Tensor& full)> agree{};
};

struct FlatUnits {
  std::vector<FlatUnit> flats;               // sorted by the order in which gradients become ready
  std::vector<std::vector<size_t>> of_unit;  // for each unit, the indices of the flat units that it
                                             // reads
};

/// Lays out the units, allocates the buffers and fills this rank's shards. All parameters of a flat
/// unit have the same type, are either all trained or all frozen, and are summed over the same
/// ranks. A parameter is never divided between flat units, but a shard boundary may divide it. The
/// parameters become views of the buffers.
FlatUnits make_flat_units(const std::vector<ParameterUnit>& units, const FlatOptions& options);

}  // namespace lockstep::parallel
