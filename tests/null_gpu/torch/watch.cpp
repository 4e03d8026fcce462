// libwatch.so, which the null GPU loads in a process that uses a device. It reports the accesses of
// libtorch's operations and the blocks of its allocator. See order.h.
#include "null_gpu/torch/watch.h"

#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>

namespace null_gpu {
namespace {

/// Adds a tensor: the whole range if it is dense, otherwise its first element.
void add(const at::Tensor& tensor, bool is_write, std::vector<Access>& accesses) {
  if (!tensor.defined() || !tensor.is_cuda() || !tensor.has_storage() || tensor.numel() == 0) {
    return;
  }
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const bool is_whole = tensor.is_non_overlapping_and_dense();
  accesses.push_back({begin, is_whole ? tensor.nbytes() : tensor.element_size(), is_write});
}

void add(const c10::IValue& value, bool is_write, std::vector<Access>& accesses) {
  if (value.isTensor()) {
    add(value.toTensor(), is_write, accesses);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      add(tensor, is_write, accesses);
    }
  }
}

/// True for collectives, which are observed in the NCCL calls.
bool is_seen_elsewhere(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  return name.substr(0, 6) == "c10d::" || name == "record_param_comms";
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  std::vector<Access> inputs;
  if (!is_seen_elsewhere(function)) {
    const auto schema = function.operator_schema();
    const auto values = function.inputs();
    for (size_t i = 0; i < values.size(); ++i) {
      const bool is_known = schema && i < schema->arguments().size();
      const auto* const alias = is_known ? schema->arguments()[i].alias_info() : nullptr;
      const bool is_write = alias != nullptr && alias->isWrite();
      if (!is_write || !schema->arguments()[i].kwarg_only()) {  // `out` is among the outputs
        add(values[i], is_write, inputs);
      }
    }
  }
  null_gpu_begin_operation(function.name(), inputs.data(), inputs.size());
  return nullptr;
}

void end(const at::RecordFunction& function, at::ObserverContext*) {
  std::vector<Access> outputs;
  if (!is_seen_elsewhere(function)) {
    for (const c10::IValue& value : function.outputs()) {
      add(value, true, outputs);
    }
  }
  null_gpu_end_operation(outputs.data(), outputs.size());
}

void watch_allocator(const c10::cuda::CUDACachingAllocator::TraceEntry& entry) {
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
  const auto* const memory = reinterpret_cast<const void*>(entry.addr_);
  if (entry.action_ == Entry::ALLOC) {
    null_gpu_gave(entry.device_, memory, entry.size_, static_cast<cudaStream_t>(entry.stream_));
  } else if (entry.action_ == Entry::FREE_COMPLETED) {
    null_gpu_took(memory, entry.size_);
  }
}

const bool is_watching = [] {
  at::addGlobalCallback(at::RecordFunctionCallback(begin, end)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(watch_allocator);
  return true;
}();

}  // namespace
}  // namespace null_gpu
