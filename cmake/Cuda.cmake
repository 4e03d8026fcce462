# liblockstep_cuda.so, beside the program: libtorch's CUDA side and NCCL. Needs the CUDA headers (the toolkit's, or
# those of the wheels that come with libtorch's GPU set) and nccl.h.
find_path(CUDA_HEADERS cuda_runtime.h
  PATHS ${libtorch_wheel}/nvidia/cu13/include /usr/local/cuda/include REQUIRED)
find_path(NCCL_HEADERS nccl.h
  PATHS ${libtorch_wheel}/nvidia/nccl/include ${CUDA_HEADERS} REQUIRED)
# The kernels need nvcc; without it ATen's operations serve. CMake's own CUDA language of this version does not know
# C++20, so nvcc is called as it is.
find_program(NVCC nvcc PATHS /usr/local/cuda/bin ${libtorch_wheel}/nvidia/cu13/bin)
set(LOCKSTEP_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures to compile for; the last one also as PTX")
set(cuda_objects "")
if(NVCC)
  set(architectures "")
  foreach(architecture IN LISTS LOCKSTEP_CUDA_ARCHITECTURES)
    list(APPEND architectures -gencode arch=compute_${architecture},code=sm_${architecture})
    set(newest ${architecture})
  endforeach()
  list(APPEND architectures -gencode arch=compute_${newest},code=compute_${newest})
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cu)
  file(GLOB cuda_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.h)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  foreach(source IN LISTS cuda_sources)
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${source} ${cuda_headers} VERBATIM
      COMMAND ${NVCC} -std=c++20 -O3 ${architectures} -Xcompiler -fPIC,-Wall,-Wextra -I${CMAKE_SOURCE_DIR}/src
              -c ${source} -o ${object})
    list(APPEND cuda_objects ${object})
  endforeach()
else()
  message(STATUS "no nvcc: liblockstep_cuda.so is built without kernels of its own")
endif()
add_library(lockstep_cuda SHARED
  ${CMAKE_SOURCE_DIR}/src/cuda/register.cpp ${CMAKE_SOURCE_DIR}/src/cuda/step_graph.cpp
  ${CMAKE_SOURCE_DIR}/src/cuda/token_loss.cpp ${cuda_objects})
if(NVCC)
  target_compile_definitions(lockstep_cuda PRIVATE LOCKSTEP_HAS_CUDA_KERNELS)
endif()
target_include_directories(lockstep_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(lockstep_cuda SYSTEM PRIVATE ${CUDA_HEADERS} ${NCCL_HEADERS})
target_compile_definitions(lockstep_cuda PRIVATE USE_C10D_NCCL)
lockstep_optimize(lockstep_cuda -O2)
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
