# liblockstep_cuda.so: NCCL, CUDA kernels and CUDA graphs on libtorch's CUDA libraries. Building it
# needs no GPU. LOCKSTEP_CUDA=AUTO builds it if nvcc and the headers (CUDA in libtorch's version,
# and NCCL) are found. ON requires the headers; without nvcc, ATen's operations replace the kernels.
#
# HINTS precede the system folders, which may hold a toolkit of another version.
find_path(CUDA_HEADERS cuda_runtime.h HINTS ${libtorch_wheel}/nvidia/cu13/include /usr/local/cuda/include)
# The CUDA runtime headers may be installed without the library headers that libtorch includes.
if(NOT EXISTS ${CUDA_HEADERS}/cublas_v2.h AND EXISTS /usr/local/cuda/include/cublas_v2.h)
  set(CUDA_HEADERS /usr/local/cuda/include CACHE PATH "" FORCE)
endif()
find_path(NCCL_HEADERS nccl.h HINTS ${libtorch_wheel}/nvidia/nccl/include ${CUDA_HEADERS})
find_program(NVCC nvcc HINTS /usr/local/cuda/bin ${libtorch_wheel}/nvidia/cu13/bin)

function(lockstep_cuda_obstacle result)
  set(${result} "" PARENT_SCOPE)
  if(LOCKSTEP_SANITIZE AND LOCKSTEP_CUDA STREQUAL "AUTO")
    set(${result} "a build with sanitizers" PARENT_SCOPE)
    return()
  endif()
  foreach(name libtorch_cuda libc10_cuda)
    if(NOT EXISTS ${LIBTORCH}/lib/${name}.so)
      set(${result} "${LIBTORCH} is libtorch without CUDA" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  if(NOT CUDA_HEADERS OR NOT NCCL_HEADERS OR NOT EXISTS ${CUDA_HEADERS}/cublas_v2.h)
    set(${result} "no headers of CUDA's libraries and NCCL" PARENT_SCOPE)
    return()
  endif()
  # Structures differ between major versions of CUDA, so libtorch and nvcc must have the same one.
  set(wanted 13)
  if(EXISTS ${LIBTORCH}/version.py)
    file(STRINGS ${LIBTORCH}/version.py line REGEX "^cuda: ")
    string(REGEX MATCH "[0-9]+" wanted "${line}")
  endif()
  file(STRINGS ${CUDA_HEADERS}/cuda_runtime_api.h line REGEX "define CUDART_VERSION ")
  string(REGEX MATCH "([0-9]+)[0-9][0-9][0-9]$" found "${line}")
  if(NOT CMAKE_MATCH_1 STREQUAL wanted)
    set(${result} "${CUDA_HEADERS} is of CUDA ${CMAKE_MATCH_1}, libtorch of ${wanted}" PARENT_SCOPE)
    return()
  endif()
  if(NVCC)
    execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE version)
    string(REGEX MATCH "release ([0-9]+)" found "${version}")
    if(NOT CMAKE_MATCH_1 STREQUAL wanted)
      set(${result} "${NVCC} is of CUDA ${CMAKE_MATCH_1}, libtorch of ${wanted}" PARENT_SCOPE)
    endif()
  elseif(LOCKSTEP_CUDA STREQUAL "AUTO")
    set(${result} "no nvcc" PARENT_SCOPE)
  endif()
endfunction()

lockstep_cuda_obstacle(obstacle)
if(obstacle AND NOT LOCKSTEP_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "LOCKSTEP_CUDA: ${obstacle}")
elseif(obstacle)
  message(STATUS "liblockstep_cuda.so is not built: ${obstacle}")
  return()
endif()

# CMake 3.25 does not support C++20 for nvcc 13, so nvcc is called directly. The architectures are
# those of libtorch's wheel, plus PTX of the newest for later GPUs.
set(LOCKSTEP_CUDA_ARCHITECTURES "75;80;86;90;100;120" CACHE STRING
  "GPU architectures to compile for; the last one also as PTX")
set(cuda_objects "")
if(NVCC)
  set(architectures "")
  foreach(architecture IN LISTS LOCKSTEP_CUDA_ARCHITECTURES)
    list(APPEND architectures -gencode arch=compute_${architecture},code=sm_${architecture})
    set(newest ${architecture})
  endforeach()
  list(APPEND architectures -gencode arch=compute_${newest},code=compute_${newest})
  file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cu)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  set(tool ${CMAKE_SOURCE_DIR}/tools/kernels.py)
  set(warnings -Xcompiler -fPIC,-Wall,-Wextra)
  if(LOCKSTEP_WERROR)
    set(warnings -Werror all-warnings -Xcompiler -fPIC,-Wall,-Wextra,-Werror)
  endif()
  foreach(source IN LISTS kernel_sources)
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${source} ${tool} DEPFILE ${object}.d VERBATIM
      COMMAND ${Python3_EXECUTABLE} ${tool} compile ${object}.usage -- ${NVCC} -std=c++20 -O3 --expt-relaxed-constexpr ${architectures}
              ${warnings} -Xptxas -v,-warn-spills,-warn-lmem-usage
              -I${CMAKE_SOURCE_DIR}/src -MD -MF ${object}.d -c ${source} -o ${object})
    list(APPEND cuda_objects ${object})
  endforeach()
  # The kernels compiled for the CPU with tests/cuda/on_cpu.h and compared with float64, under ASan
  # and UBSan.
  set(on_cpu "")
  foreach(source IN LISTS kernel_sources)
    get_filename_component(name ${source} NAME_WE)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cuda/${name}_on_cpu.cpp
      CONTENT "#include \"cuda/on_cpu.h\"\n#include \"${source}\"\n")
    list(APPEND on_cpu ${CMAKE_BINARY_DIR}/cuda/${name}_on_cpu.cpp)
  endforeach()
  file(GLOB cuda_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/*.cpp)
  set(loops optim/dynamic_map.cpp ops/cpu/adamw_kernel.cpp)  # CPU loops that the kernels must match bit for bit
  list(TRANSFORM loops PREPEND ${CMAKE_SOURCE_DIR}/src/)
  add_executable(cuda_test ${cuda_tests} ${on_cpu} ${loops})
  target_include_directories(cuda_test PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_include_directories(cuda_test SYSTEM PRIVATE ${CUDA_HEADERS})
  target_link_libraries(cuda_test PRIVATE lockstep_base lockstep_compiler lockstep_gtest)
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined)
  target_compile_options(cuda_test PRIVATE -Wno-unknown-pragmas ${sanitize})
  target_link_options(cuda_test PRIVATE ${sanitize})
  lockstep_optimize(cuda_test -O1)
  gtest_discover_tests(cuda_test DISCOVERY_MODE PRE_TEST TEST_PREFIX cuda.)
  add_test(NAME cuda.registers COMMAND ${Python3_EXECUTABLE} ${tool} check ${CMAKE_BINARY_DIR}/cuda)
else()
  message(STATUS "no nvcc: liblockstep_cuda.so is built without its own kernels")
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cpp)
add_library(lockstep_cuda SHARED ${cuda_sources} ${cuda_objects})
if(NVCC)
  target_compile_definitions(lockstep_cuda PRIVATE LOCKSTEP_HAS_CUDA_KERNELS)
endif()
target_include_directories(lockstep_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(lockstep_cuda SYSTEM PRIVATE ${CUDA_HEADERS} ${NCCL_HEADERS})
list(GET LOCKSTEP_CUDA_ARCHITECTURES 0 oldest)
target_compile_definitions(lockstep_cuda PRIVATE USE_C10D_NCCL LOCKSTEP_OLDEST_ARCHITECTURE=${oldest})
lockstep_optimize(lockstep_cuda -O2)
lockstep_unite(lockstep_cuda ${lockstep_united_bytes_with_torch} ${cuda_sources})
find_library(CUDART NAMES cudart libcudart.so.13
  HINTS ${libtorch_wheel}/nvidia/cu13/lib ${CUDA_HEADERS}/../lib64 ${CUDA_HEADERS}/../lib REQUIRED)
target_link_libraries(lockstep_cuda PRIVATE lockstep_compiler lockstep_dependencies lockstep_libtorch
  -Wl,--no-as-needed ${LIBTORCH}/lib/libtorch_cuda.so ${LIBTORCH}/lib/libc10_cuda.so
  ${LIBTORCH}/lib/libtorch.so ${CUDART})
# All symbols of the project must resolve. libtorch_cuda.so's own dependencies are resolved at run
# time on a GPU machine.
target_link_options(lockstep_cuda PRIVATE -Wl,--no-undefined -Wl,--allow-shlib-undefined)
set_target_properties(lockstep_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  BUILD_RPATH "${CMAKE_BUILD_RPATH};${libtorch_wheel}/nvidia/nccl/lib;${libtorch_wheel}/nvidia/cudnn/lib"
  INSTALL_RPATH "${CMAKE_INSTALL_RPATH};${libtorch_wheel}/nvidia/nccl/lib;${libtorch_wheel}/nvidia/cudnn/lib")
install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
add_dependencies(accelerators lockstep_cuda)
if(TARGET lockstep-core)
  set_target_properties(lockstep-core PROPERTIES BUILD_RPATH "$ORIGIN;${CMAKE_BUILD_RPATH}"
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${CMAKE_INSTALL_RPATH}")
endif()
if(TARGET train_test)
  add_dependencies(train_test lockstep_cuda)
  target_compile_definitions(train_test PRIVATE LOCKSTEP_CUDA_LIBRARY="$<TARGET_FILE:lockstep_cuda>")
endif()
