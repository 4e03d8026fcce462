// Autograd function for attention with the AVX-512 loops.
#include "ops/attention_vector.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/attention_part.h"

namespace lockstep::ops {
namespace {

PartSees sees(bool causal) {
  return causal ? PartSees::kEarlier : PartSees::kAll;
}

struct VectorAttention : torch::autograd::Function<VectorAttention> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      double scale,
      int64_t window,
      bool causal,
      const std::optional<Tensor>& documents,
      const std::optional<Tensor>& sinks) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor starts = documents.value_or(Tensor());
    const AttentionPart whole =
        attention_part(query, key, value, scale, sees(causal), window, starts);
    if (sinks) {
      add_sinks(whole, *sinks);
    }
    context->save_for_backward(
        {query, key, value, whole.out, whole.log_sum, sinks.value_or(Tensor())});
    context->saved_data["scale"] = scale;
    context->saved_data["window"] = window;
    context->saved_data["causal"] = causal;
    context->saved_data["starts"] = starts;
    return whole.out;
  }

  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = context->get_saved_variables();
    const AttentionPart whole{saved[3], saved[4]};
    const Tensor& sinks = saved[5];
    const AttentionPartGradients made = attention_part_backward(
        gradients[0],
        whole,
        saved[0],
        saved[1],
        saved[2],
        context->saved_data["scale"].toDouble(),
        sees(context->saved_data["causal"].toBool()),
        context->saved_data["window"].toInt(),
        context->saved_data["starts"].toTensor());
    torch::autograd::tensor_list result{made.query, made.key, made.value};
    result.resize(8);
    if (sinks.defined()) {
      result.back() = sinks_gradient(gradients[0], whole, sinks);
    }
    return result;
  }
};

}  // namespace

bool has_vector_attention(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const bool sinks_by_documents = options.sinks.defined() && options.document_starts.defined();
  return options.dropout == 0 && options.cap == 0 && !sinks_by_documents && query.numel() > 0 &&
         query.size(2) > 1 && query.size(2) == key.size(2) && has_attention_loops(query, key);
}

Tensor vector_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  return VectorAttention::apply(
      query,
      key,
      value,
      options.scale,
      options.window,
      options.causal,
      if_defined(options.document_starts),
      if_defined(options.sinks));
}

}  // namespace lockstep::ops
