// Parameters that are reduced together: one flat buffer for their values, one for their gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace lockstep::parallel {

using at::Tensor;

struct NamedParameter {
  std::string name;  // Hugging Face's, whole
  Tensor tensor;     // a leaf; the bucket replaces its data by a view of the flat buffer
  bool decays = true;
};

/// Parameters that are used together: the embedding, a block, the head. In order of use.
struct ParameterUnit {
  std::string name;
  std::vector<NamedParameter> parameters;
};

struct Bucket {
  struct Entry {
    std::string name;
    Tensor parameter;
    int64_t offset = 0, count = 0;  // in the flat buffers
    bool written = false;           // this step: its part of `gradient` holds something
    bool seen = false;              // this micro-batch
  };
  std::vector<Entry> entries;  // those that decay first
  int64_t decayed = 0;         // so many leading elements decay
  Tensor values, gradient;     // [n], of the parameters' and of the gradients' type
  size_t complete = 0;         // entries seen in this micro-batch
  comm::Pending reduction;
};

/// Cuts units into buckets of at least `bytes` (the last may be smaller), from the last unit to the
/// first: the order in which their gradients come. A bucket holds one type; a parameter is never
/// split. The parameters become views of the buckets' values; frozen ones (no requires_grad) are
/// left out.
std::vector<Bucket> make_buckets(
    const std::vector<ParameterUnit>& units, int64_t bytes, at::ScalarType gradient_type);

}  // namespace lockstep::parallel
