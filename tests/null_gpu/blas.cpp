// cuBLAS and cuBLASLt: a product is a kernel of the handle's stream. Products themselves are made
// by stubs.py, which call null_gpu_product.
#include <map>

#include <cublasLt.h>
#include <cublas_v2.h>

#include "null_gpu/machine.h"
#include "null_gpu/report.h"

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};
Handle& handle_of(cublasHandle_t handle) {
  return *reinterpret_cast<Handle*>(handle);
}

void add_product(cudaStream_t stream, const char* name) {
  const std::unique_lock lock(null_gpu::mutex());
  null_gpu::count("launches");
  null_gpu::add_work(null_gpu::stream_of(stream), name);
}

template <class Opaque>
cublasStatus_t create(Opaque** result) {
  *result = new Opaque{};
  return CUBLAS_STATUS_SUCCESS;
}
template <class Opaque>
cublasStatus_t destroy(Opaque* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

int null_gpu_product(void* handle, const char* name) {
  add_product(static_cast<Handle*>(handle)->stream, name);
  return 0;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete &handle_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle_of(handle).stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle_of(handle).math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle_of(handle).math;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle_of(handle).pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = handle_of(handle).pointers;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}
cublasStatus_t cublasLtMatmulDescCreate(
    cublasLtMatmulDesc_t* result, cublasComputeType_t, cudaDataType_t) {
  return create(result);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t object) {
  return destroy(object);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t* result, cudaDataType, uint64_t, uint64_t, int64_t) {
  return create(result);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t object) {
  return destroy(object);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* result) {
  return create(result);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t object) {
  return destroy(object);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t,
    cublasLtMatmulDesc_t,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t,
    int,
    cublasLtMatmulHeuristicResult_t results[],
    int* count) {
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t,
    cublasLtMatmulDesc_t,
    const void*,
    const void*,
    cublasLtMatrixLayout_t,
    const void*,
    cublasLtMatrixLayout_t,
    const void*,
    const void*,
    cublasLtMatrixLayout_t,
    void*,
    cublasLtMatrixLayout_t,
    const cublasLtMatmulAlgo_t*,
    void*,
    size_t,
    cudaStream_t stream) {
  add_product(stream, "cublasLtMatmul");
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
