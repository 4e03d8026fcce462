// Single-process data parallelism.
#include "parallel/one_process/data_parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/sequential.h>

#include "base/error.h"

namespace lockstep {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Runs body(0), ..., body(count - 1) on separate threads, each with an equal share of the cores.
void on_threads(
    size_t count,
    const std::vector<c10::Device>& devices,
    const std::function<void(size_t)>& body) {
  const int threads_each = std::max(1, at::get_num_threads() / static_cast<int>(count));
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (size_t index = 0; index < count; ++index) {
    threads.emplace_back([&, index] {
      try {
        at::set_num_threads(threads_each);
        const c10::OptionalDeviceGuard guard(devices[index]);
        body(index);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        first = first == nullptr ? std::current_exception() : first;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (first != nullptr) {
    std::rethrow_exception(first);
  }
}

/// Replicas, inputs and outputs of one step.
struct Round : torch::CustomClassHolder {
  std::vector<Replica>* replicas = nullptr;
  std::vector<c10::Device> devices;
  std::vector<std::vector<Tensor>> inputs;  // one entry per replica
  std::vector<Tensor> outputs;              // with their autograd graphs

  Tensor forward(at::TensorList parameters, bool with_gradients) {
    outputs.resize(inputs.size());
    on_threads(inputs.size(), devices, [&](size_t index) {
      Replica& replica = (*replicas)[index];
      {
        const at::NoGradGuard no_grad;
        for (size_t p = 0; p < replica.parameters.size(); ++p) {
          replica.parameters[p].copy_(parameters[p]);
        }
      }
      std::vector<Tensor> own;
      for (const Tensor& input : inputs[index]) {
        own.push_back(input.to(devices[index]));
      }
      const at::AutoGradMode mode(with_gradients);
      outputs[index] = replica.forward(own);
    });
    std::vector<Tensor> gathered;
    for (const Tensor& output : outputs) {
      gathered.push_back(output.detach().to(devices.front()));
    }
    return at::cat(gathered);
  }

  tensor_list backward(const Tensor& gradient) {
    std::vector<int64_t> rows;
    for (const Tensor& output : outputs) {
      rows.push_back(output.size(0));
    }
    const std::vector<Tensor> parts = gradient.split_with_sizes(rows);
    std::vector<Tensor> own;
    for (size_t index = 0; index < outputs.size(); ++index) {
      own.push_back(parts[index].to(devices[index]).contiguous());
    }
    if (devices.front().is_cpu()) {
      on_threads(outputs.size(), devices, [&](size_t index) {
        torch::autograd::backward({outputs[index]}, {own[index]});
      });
    } else {
      // This is autograd's thread for its GPU. While it waits, it processes other tasks of that
      // GPU; waiting on another thread would block the GPU.
      torch::autograd::backward(outputs, own);
    }
    outputs.clear();
    tensor_list sums((*replicas)[0].parameters.size());
    for (size_t index = 0; index < inputs.size(); ++index) {
      std::vector<Tensor>& parameters = (*replicas)[index].parameters;
      for (size_t p = 0; p < parameters.size(); ++p) {
        Tensor own = std::exchange(parameters[p].mutable_grad(), Tensor());
        if (own.defined()) {
          own = own.to(devices.front());
          sums[p] = sums[p].defined() ? sums[p].add_(own) : own;
        }
      }
    }
    return sums;
  }
};

struct RoundFunction : torch::autograd::Function<RoundFunction> {
  static Tensor forward(
      AutogradContext* context, at::TensorList parameters, const c10::intrusive_ptr<Round>& round) {
    context->saved_data["round"] = c10::IValue::make_capsule(round);
    return round->forward(parameters, /*with_gradients=*/true);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradient) {
    const auto round =
        c10::static_intrusive_pointer_cast<Round>(context->saved_data["round"].toCapsule());
    tensor_list sums = round->backward(gradient[0]);
    sums.emplace_back();  // the Round argument has no gradient
    return sums;
  }
};

DataParallel::MakeReplica cloning(const torch::nn::Sequential& module) {
  return [module](c10::Device device) {
    auto clone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(module->clone(device));
    Replica replica{clone->parameters(), nullptr};
    replica.forward = [clone = std::move(clone)](const std::vector<Tensor>& inputs) {
      return clone->forward(inputs.front());
    };
    return replica;
  };
}

}  // namespace

DataParallel::DataParallel(
    std::vector<Tensor> parameters, const MakeReplica& make, std::vector<c10::Device> devices)
    : parameters_(std::move(parameters)),
      devices_(std::move(devices)) {
  if (devices_.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "the list of devices for data parallelism is empty",
        "name at least one device");
  }
  for (const c10::Device device : devices_) {
    replicas_.push_back(make(device));
  }
}

DataParallel::DataParallel(const torch::nn::Sequential& module, std::vector<c10::Device> devices)
    : DataParallel(module->parameters(), cloning(module), std::move(devices)) {}

Tensor DataParallel::forward(const std::vector<Tensor>& inputs) {
  auto round = c10::make_intrusive<Round>();
  round->replicas = &replicas_;
  round->devices = devices_;
  const auto count = static_cast<int64_t>(devices_.size());
  for (int64_t index = 0; index < count; ++index) {
    std::vector<Tensor> own;
    for (const Tensor& input : inputs) {
      const int64_t begin = input.size(0) * index / count,
                    end = input.size(0) * (index + 1) / count;
      own.push_back(input.slice(0, begin, end));
    }
    round->inputs.push_back(std::move(own));
  }
  // If there are fewer rows than devices, the last devices receive none.
  std::erase_if(round->inputs, [](const std::vector<Tensor>& own) {
    return !own.empty() && own.front().size(0) == 0;
  });
  if (!at::GradMode::is_enabled()) {
    return round->forward(parameters_, /*with_gradients=*/false);
  }
  return RoundFunction::apply(at::TensorList(parameters_), round);
}

}  // namespace lockstep
