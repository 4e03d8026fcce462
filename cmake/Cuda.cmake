# liblockstep_cuda.so, beside the program: libtorch's CUDA side and NCCL. Needs the CUDA headers (the toolkit's, or
# those of the wheels that come with libtorch's GPU set) and nccl.h.
find_path(CUDA_HEADERS cuda_runtime.h
  PATHS ${libtorch_wheel}/nvidia/cu13/include /usr/local/cuda/include REQUIRED)
find_path(NCCL_HEADERS nccl.h
  PATHS ${libtorch_wheel}/nvidia/nccl/include ${CUDA_HEADERS} REQUIRED)
add_library(lockstep_cuda SHARED ${CMAKE_SOURCE_DIR}/src/cuda/register.cpp)
target_include_directories(lockstep_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(lockstep_cuda SYSTEM PRIVATE ${CUDA_HEADERS} ${NCCL_HEADERS})
target_compile_definitions(lockstep_cuda PRIVATE USE_C10D_NCCL)
target_link_libraries(lockstep_cuda PRIVATE lockstep_compiler lockstep_libtorch
  -Wl,--no-as-needed ${LIBTORCH}/lib/libtorch_cuda.so ${LIBTORCH}/lib/libc10_cuda.so
  ${LIBTORCH}/lib/libtorch.so)
# libtorch_cuda.so's own libraries are found at run time, on a machine that has them.
target_link_options(lockstep_cuda PRIVATE -Wl,--allow-shlib-undefined)
set_target_properties(lockstep_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  BUILD_RPATH "${CMAKE_BUILD_RPATH};${libtorch_wheel}/nvidia/nccl/lib;${libtorch_wheel}/nvidia/cudnn/lib")
if(TARGET lockstep-core)
  add_dependencies(lockstep-core lockstep_cuda)
  set_target_properties(lockstep-core PROPERTIES BUILD_RPATH "$ORIGIN;${CMAKE_BUILD_RPATH}")
endif()
