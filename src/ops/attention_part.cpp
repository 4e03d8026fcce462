// Partial attention by CPU loops or flash attention, and the merging of parts.
#include "ops/attention_part.h"

#include <array>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/jobs.h"
#include "ops/cpu/machine.h"
#include "ops/cpu/vector.h"
#include "ops/flash_part.h"
#include "ops/split_heads.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kLongest = 2048;  // maximum number of keys: 64 rows of scores for this many keys
                                    // take half a megabyte

const kernel::AttentionLoops* loops_for(const Tensor& query) {
#if defined(__x86_64__)
  const MatrixUnit unit = matrix_unit();
  if (has_host_loops(query) && query.scalar_type() == at::kFloat && unit >= MatrixUnit::kAvx512) {
    return &kernel::kAttentionFloat;
  }
  if (has_host_loops(query) && query.scalar_type() == at::kBFloat16 &&
      unit >= MatrixUnit::kBfloat16) {
    return unit >= MatrixUnit::kAmx ? &kernel::kAttentionAmx : &kernel::kAttentionBfloat16;
  }
#else
  (void)query;
#endif
  return nullptr;
}

/// Returns x [B, H, T, D] with a dense last dimension.
Tensor dense_heads(const Tensor& x) {
  return x.stride(3) == 1 ? x : x.contiguous();
}

kernel::HeadStrides strides_of(const Tensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

/// Returns an empty tensor with the shape of x [B, H, T, D], laid out as [B, T, H, D].
Tensor empty_by_token(const Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

kernel::AttentionSizes sizes_of(
    const Tensor& query, const Tensor& key, double scale, PartSees sees, int64_t window) {
  return {
      .heads = query.size(1),
      .kv_heads = key.size(1),
      .length = query.size(2),
      .keys = key.size(2),
      .size = query.size(3),
      .sees_all = sees == PartSees::kAll,
      .window = window,
      .scale = static_cast<float>(scale)};
}

kernel::AttentionForward forward_of(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& out,
    const Tensor& log_sum) {
  return {
      .query = query.const_data_ptr(),
      .key = key.const_data_ptr(),
      .value = value.const_data_ptr(),
      .query_at = strides_of(query),
      .key_at = strides_of(key),
      .value_at = strides_of(value),
      .out_at = strides_of(out),
      .out = out.data_ptr(),
      .log_sum = log_sum.data_ptr<float>()};
}

/// A document in a row, which consists of the tokens [begin, begin + length).
struct Document {
  int64_t row, begin, length;
};

/// Returns the documents for starts [B, T] on the CPU. A document begins at each token that is its
/// own start.
std::vector<Document> documents_of(const Tensor& starts) {
  const Tensor dense = starts.contiguous();
  const auto* start = dense.const_data_ptr<int64_t>();
  const int64_t length = dense.size(1);
  std::vector<Document> documents;
  for (int64_t row = 0; row < dense.size(0); ++row) {
    for (int64_t t = 0; t < length; ++t) {
      if (t == 0 || start[row * length + t] == t) {
        documents.push_back({row, t, 0});
      }
      ++documents.back().length;
    }
  }
  return documents;
}

/// Offsets the arrays of whole rows so that they refer to one document.
class OneDocument {
 public:
  OneDocument(const Document& document, const kernel::AttentionSizes& rows, const Tensor& query)
      : document_(document),
        element_(static_cast<int64_t>(query.element_size())),
        heads_(rows.heads),
        whole_(rows.length) {}

  kernel::AttentionForward operator()(kernel::AttentionForward arrays) const {
    arrays.query = moved(arrays.query, arrays.query_at);
    arrays.key = moved(arrays.key, arrays.key_at);
    arrays.value = moved(arrays.value, arrays.value_at);
    arrays.out = moved(arrays.out, arrays.out_at);
    // log_sum stores all heads of a document before those of the next document.
    arrays.log_sum += heads_ * (document_.row * whole_ + document_.begin);
    if (arrays.seen_until != nullptr) {
      arrays.seen_until += document_.row * whole_ + document_.begin;
    }
    return arrays;
  }
  kernel::AttentionBackward operator()(kernel::AttentionBackward arrays) const {
    arrays.forward = (*this)(arrays.forward);
    arrays.out_gradient = moved(arrays.out_gradient, arrays.out_gradient_at);
    arrays.query_gradient = moved(arrays.query_gradient, arrays.query_gradient_at);
    arrays.key_gradient = moved(arrays.key_gradient, arrays.key_gradient_at);
    arrays.value_gradient = moved(arrays.value_gradient, arrays.value_gradient_at);
    return arrays;
  }

 private:
  int64_t offset(const kernel::HeadStrides& at) const {
    return (document_.row * at.batch + document_.begin * at.position) * element_;
  }
  const void* moved(const void* data, const kernel::HeadStrides& at) const {
    return static_cast<const uint8_t*>(data) + offset(at);
  }
  void* moved(void* data, const kernel::HeadStrides& at) const {
    return static_cast<uint8_t*>(data) + offset(at);
  }

  const Document& document_;
  int64_t element_, heads_, whole_;
};

/// Calls run(sizes, arrays, first, last, scratch) for each key-value head of each row or, with
/// `starts`, of each document.
template <class Arrays, class Run>
void over_heads(
    const kernel::AttentionLoops& loops,
    const kernel::AttentionSizes& rows,
    const Arrays& arrays,
    const Tensor& query,
    const Tensor& starts,
    const Run& run) {
  if (!starts.defined()) {
    over_jobs(
        query.size(0) * rows.kv_heads,
        loops.scratch_bytes(rows),
        [&](int64_t first, int64_t last, void* scratch) {
          run(rows, arrays, first, last, scratch);
        });
    return;
  }
  const std::vector<Document> documents = documents_of(starts);
  over_jobs(
      static_cast<int64_t>(documents.size()) * rows.kv_heads,
      loops.scratch_bytes(rows),
      [&](int64_t first, int64_t last, void* scratch) {
        for (int64_t job = first; job < last; ++job) {
          const Document& document = documents[static_cast<size_t>(job / rows.kv_heads)];
          kernel::AttentionSizes sizes = rows;
          sizes.length = sizes.keys = document.length;
          const int64_t head = job % rows.kv_heads;
          run(sizes, OneDocument(document, rows, query)(arrays), head, head + 1, scratch);
        }
      });
}

/// Converts `seen_until` to the format of the loops: positions within each token's document, padded
/// by one panel.
Tensor seen_in_documents(const Tensor& seen_until, const Tensor& starts) {
  constexpr int64_t kPanel = 64;
  const Tensor result = at::zeros({seen_until.numel() + kPanel}, at::kInt);
  result.narrow(0, 0, seen_until.numel()).copy_((seen_until - starts).flatten());
  return result;
}

/// Throws Error (internal) if a window or documents are given, which flash attention does not
/// support here.
void require_plain(int64_t window, const Tensor& starts) {
  if (window > 0 || starts.defined()) {
    throw Error(
        ErrorKind::kInternal, "partial attention by ATen does not support windows and documents");
  }
}

}  // namespace

bool has_attention_loops(const Tensor& query, const Tensor& key) {
  return loops_for(query) != nullptr && query.scalar_type() == key.scalar_type() &&
         key.size(2) <= kLongest;
}

bool has_attention_part(const Tensor& query, const Tensor& key) {
  return has_attention_loops(query, key) || has_flash_part(query, key);
}

AttentionPart attention_part(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees,
    int64_t window,
    const Tensor& document_starts,
    const Tensor& seen_until) {
  if (!has_attention_loops(query, key)) {
    require_plain(window, document_starts);
    return flash_part(query, key, value, scale, sees);
  }
  const Tensor q = dense_heads(query), k = dense_heads(key), v = dense_heads(value);
  AttentionPart part{
      empty_by_token(q),
      at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
  const kernel::AttentionLoops& loops = *loops_for(q);
  const kernel::AttentionSizes sizes = sizes_of(q, k, scale, sees, window);
  kernel::AttentionForward arrays = forward_of(q, k, v, part.out, part.log_sum);
  Tensor seen;
  if (seen_until.defined()) {
    seen = seen_in_documents(seen_until, document_starts);
    arrays.seen_until = seen.const_data_ptr<int32_t>();
  }
  over_heads(loops, sizes, arrays, q, document_starts, loops.forward);
  return part;
}

namespace {

/// Computes out = out * keep + more * take for the rows of one head.
template <class Out, class More>
struct AddRows {
  LOCKSTEP_INLINE static void run(
      Out* out,
      int64_t out_row,
      const More* more,
      int64_t more_row,
      const float* keep,
      const float* take,
      int64_t rows,
      int64_t size) {
    for (int64_t row = 0; row < rows; ++row, out += out_row, more += more_row) {
      for (int64_t i = 0; i < size; i += vector::kLanes) {
        const int64_t left = size - i;
        const vector::Floats kept = vector::load_up_to(out + i, left) * keep[row];
        vector::store_up_to(out + i, kept + vector::load_up_to(more + i, left) * take[row], left);
      }
    }
  }
};

template <class Out, class More>
void add_rows(const Tensor& out, const Tensor& more, const Tensor& keep, const Tensor& take) {
  auto* to = static_cast<Out*>(out.data_ptr());
  const auto* from = static_cast<const More*>(more.const_data_ptr());
  const auto *of_out = keep.const_data_ptr<float>(), *of_more = take.const_data_ptr<float>();
  const int64_t heads = out.size(1), rows = out.size(2);
  at::parallel_for(0, out.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t job = begin; job < end; ++job) {
      const int64_t batch = job / heads, head = job % heads;
      vector::dispatch<AddRows<Out, More>>(
          to + batch * out.stride(0) + head * out.stride(1),
          out.stride(2),
          from + batch * more.stride(0) + head * more.stride(1),
          more.stride(2),
          of_out + job * rows,
          of_more + job * rows,
          rows,
          out.size(3));
    }
  });
}

}  // namespace

void add_attention_part(const AttentionPart& seen, const AttentionPart& more) {
  const Tensor both = at::logaddexp(seen.log_sum, more.log_sum);
  const Tensor keep = (seen.log_sum - both).exp_().contiguous();
  const Tensor take = (more.log_sum - both).exp_().contiguous();
  seen.log_sum.copy_(both);
  const Tensor &out = seen.out, &added = more.out;
  const auto to = out.scalar_type(), from = added.scalar_type();
  const bool has_loops = has_host_loops(out) && out.stride(3) == 1 && added.stride(3) == 1;
  if (has_loops && to == at::kFloat && from == at::kFloat) {
    add_rows<float, float>(out, added, keep, take);
  } else if (has_loops && to == at::kFloat && from == at::kBFloat16) {
    add_rows<float, vector::Bfloat16>(out, added, keep, take);
  } else if (has_loops && to == at::kBFloat16 && from == at::kBFloat16) {
    add_rows<vector::Bfloat16, vector::Bfloat16>(out, added, keep, take);
  } else {
    out.copy_(out * keep.unsqueeze(3) + added * take.unsqueeze(3));
  }
}

AttentionPartGradients attention_part_backward(
    const Tensor& out_gradient,
    const AttentionPart& whole,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees,
    int64_t window,
    const Tensor& document_starts) {
  if (!has_attention_loops(query, key)) {
    require_plain(window, document_starts);
    return flash_part_backward(out_gradient, whole, query, key, value, scale, sees);
  }
  const Tensor q = dense_heads(query), k = dense_heads(key), v = dense_heads(value);
  const Tensor dout = dense_heads(out_gradient), out = dense_heads(whole.out);
  const Tensor log_sum = whole.log_sum.contiguous();
  const auto [dq, dk, dv] =
      are_packed_heads(q, k, v)
          ? empty_packed_heads(q)
          : std::array<Tensor, 3>{empty_by_token(q), empty_by_token(k), empty_by_token(v)};
  const kernel::AttentionLoops& loops = *loops_for(q);
  const kernel::AttentionSizes sizes = sizes_of(q, k, scale, sees, window);
  const kernel::AttentionBackward arrays{
      .forward = forward_of(q, k, v, out, log_sum),
      .out_gradient = dout.const_data_ptr(),
      .out_gradient_at = strides_of(dout),
      .query_gradient = dq.data_ptr(),
      .key_gradient = dk.data_ptr(),
      .value_gradient = dv.data_ptr(),
      .query_gradient_at = strides_of(dq),
      .key_gradient_at = strides_of(dk),
      .value_gradient_at = strides_of(dv)};
  over_heads(loops, sizes, arrays, q, document_starts, loops.backward);
  return {dq, dk, dv};
}

namespace {

/// Returns the sinks as [H, 1], which broadcasts with log_sum.
Tensor column(const Tensor& sinks, const Tensor& log_sum) {
  return sinks.detach().to(log_sum.scalar_type()).unsqueeze(1);
}

}  // namespace

void add_sinks(const AttentionPart& whole, const Tensor& sinks) {
  const Tensor all = at::logaddexp(whole.log_sum, column(sinks, whole.log_sum));
  whole.out.mul_((whole.log_sum - all).exp_().unsqueeze(3));
  whole.log_sum.copy_(all);
}

Tensor sinks_gradient(const Tensor& out_gradient, const AttentionPart& whole, const Tensor& sinks) {
  const Tensor share = (column(sinks, whole.log_sum) - whole.log_sum).exp_();  // [B, H, T]
  const Tensor dot = (out_gradient.to(share.scalar_type()) * whole.out).sum(3);
  return (share * dot).sum(at::IntArrayRef({0, 2})).neg_().to(sinks.scalar_type());
}

}  // namespace lockstep::ops
