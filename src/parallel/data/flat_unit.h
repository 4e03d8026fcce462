// Flat units: parameters that are gathered, reduced, updated and freed together, with one buffer
// each for values and gradients. A ZeRO stage (Rajbhandari et al., 2020) decides how much of these
// buffers a rank stores:
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
  std::string name;  // Hugging Face's, whole
  Tensor tensor;     // a leaf; its data is replaced by a view of the flat buffer
  optim::UpdateRule rule{};
  bool alone = false;  // has its own flat unit, with an independent shard layout
  /// Further ranks over which its gradient is summed; null: none.
  comm::Communicator* summed_over = nullptr;
  int64_t packed = 0;  // number of weights packed in the bytes; 0: not packed
  int64_t weights() const { return packed > 0 ? packed : tensor.numel(); }
};

/// Parameters that are used together: the embedding, a block, the head. In order of use.
struct ParameterUnit {
  std::string name;
  std::vector<NamedParameter> parameters;
  /// Other units whose parameters this unit also reads: a tied head reads the embedding's.
  std::vector<size_t> also_uses = {};
  /// False if its backward pass reads no parameters, as for an embedding.
  bool backward_reads_parameters = true;
};

/// Writes the initial values of elements [begin, begin + out.numel()) of a flattened parameter,
/// drawn at random or read from a file. The same on every rank; `out` is contiguous.
using ParameterSource = std::function<void(const std::string& name, int64_t begin, Tensor out)>;

struct FlatUnit {
  struct Entry {
    std::string name;
    Tensor parameter;               // its data is a view of `full`
    int64_t offset = 0, count = 0;  // position in the flat buffers
    optim::UpdateRule rule{};
  };
  std::string name;            // name of the unit, or of its first and last one
  std::vector<Entry> entries;  // grouped by update rule
  bool trainable = true;       // false: the entries are frozen and have no gradients
  bool persistent = true;      // `full` is never freed
  bool replicated = true;      // every rank stores all of it: the shard is `full`
  bool alone = false;          // NamedParameter::alone: its gradient may be modified after the sum
  comm::Communicator* summed_over = nullptr;  // the same for all entries
  int64_t lowest_unit = 0;                    // first unit that uses it; its gradients come last
  int64_t weights = 0;                        // unpacked weights of all entries

  Tensor full;  // [size] the values, of the parameters' type
  /// [part] this rank's shard: a view of `full` if persistent; otherwise possibly on the host, or
  /// without memory (shard_file.h).
  Tensor shard;
  Tensor gradient;          // [size]; stages 2 and 3: defined only while the backward pass fills it
  Tensor shard_gradient;    // [part] the sum over the ranks: a view of `gradient` in stages 0 and 1
  int64_t shard_begin = 0;  // offset of the shard in `full`

  int64_t size() const { return full.numel(); }
  /// Positions of the entries in the shard, one per entry in order; may be empty.
  std::vector<optim::Segment> shard_layout() const;
  /// Zeroes the gaps: after the last parameter and before aligned ones.
  void clear_gaps(const Tensor& flat) const;
};

struct FlatOptions {
  int zero_stage = 0;
  int64_t rank = 0, ranks = 1;
  /// Stages 0 to 2: maximum size of a buffer shared by neighboring units. In stage 3 each unit has
  /// its own.
  int64_t bucket_bytes = 0;
  /// Stage 3: parameters of fewer weights than this stay whole, in one buffer.
  int64_t persistence_threshold = 0;
  /// Every parameter and every shard starts at a multiple of this number of elements.
  int64_t alignment = 1;
  /// Stage 3: stores shards in host memory, or in this file.
  bool offload_parameters = false;
  ShardFile* file = nullptr;
  /// Type of the gradient buffers; nullopt: the parameters' type.
  std::optional<at::ScalarType> gradient_type{};
  /// Initial values; this rank reads only its own shards.
  ParameterSource source{};
  /// Without a source: makes the parameters' values equal on every rank, one flat unit at a time.
  std::function<void(const Tensor& full)> agree{};
};

struct FlatUnits {
  std::vector<FlatUnit> flats;               // in the order in which their gradients become ready
  std::vector<std::vector<size_t>> of_unit;  // indices of the flat units that each unit reads
};

/// Lays out the units, allocates, and fills this rank's shards. A flat unit has parameters of one
/// type, all trained or all frozen, summed over the same ranks; the layout never splits a parameter
/// (a shard boundary may). The parameters become views of it.
FlatUnits make_flat_units(const std::vector<ParameterUnit>& units, const FlatOptions& options);

}  // namespace lockstep::parallel
