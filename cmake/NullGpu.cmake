# The null GPU: replacements of NVIDIA's libraries that enforce their rules and compute nothing, so
# that GPU code paths run on machines without a GPU (docs/gpu.md). tests/program/test_null_gpu.py
# preloads them. They are not installed.
find_path(CUDNN_HEADERS cudnn.h HINTS ${libtorch_wheel}/nvidia/cudnn/include ${CUDA_HEADERS})
if(NOT CUDNN_HEADERS)
  message(STATUS "no null GPU: no headers of cuDNN")
  return()
endif()
set(folder ${CMAKE_BINARY_DIR}/null_gpu)
file(MAKE_DIRECTORY ${folder})
file(GLOB null_gpu_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/null_gpu/*.cpp)
add_library(null_gpu_meaning OBJECT ${null_gpu_sources})
target_link_libraries(null_gpu_meaning PRIVATE lockstep_compiler)
target_include_directories(null_gpu_meaning PRIVATE ${CMAKE_SOURCE_DIR}/tests)
target_include_directories(null_gpu_meaning SYSTEM PRIVATE ${CUDA_HEADERS} ${NCCL_HEADERS} ${CUDNN_HEADERS})
lockstep_optimize(null_gpu_meaning -O1)

# Every other entry point aborts the process and prints its name.
set(stubs ${folder}/stubs.S)
add_custom_command(OUTPUT ${stubs} VERBATIM COMMAND_EXPAND_LISTS
  DEPENDS ${CMAKE_SOURCE_DIR}/tests/null_gpu/stubs.py null_gpu_meaning $<TARGET_OBJECTS:null_gpu_meaning>
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/null_gpu/stubs.py ${LIBTORCH} ${stubs} $<TARGET_OBJECTS:null_gpu_meaning>)
add_custom_command(OUTPUT ${folder}/stubs.o DEPENDS ${stubs} VERBATIM
  COMMAND ${CMAKE_CXX_COMPILER} -c ${stubs} -o ${folder}/stubs.o)
add_library(null_gpu SHARED ${folder}/stubs.o $<TARGET_OBJECTS:null_gpu_meaning>)
set_target_properties(null_gpu PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${folder})
target_link_libraries(null_gpu PRIVATE lockstep_compiler ${CMAKE_DL_LIBS} Threads::Threads)

# Reports to the null GPU what libtorch's operations read and write and what its allocator returns.
# Opened when a device is first used.
add_library(null_gpu_watch SHARED ${CMAKE_SOURCE_DIR}/tests/null_gpu/torch/watch.cpp)
add_executable(null_gpu_plants ${CMAKE_SOURCE_DIR}/tests/null_gpu/torch/plants.cpp)
foreach(target null_gpu_watch null_gpu_plants)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDA_HEADERS} ${NCCL_HEADERS})
  target_link_libraries(${target} PRIVATE lockstep_compiler lockstep_libtorch null_gpu
    -Wl,--no-as-needed ${LIBTORCH}/lib/libtorch_cuda.so ${LIBTORCH}/lib/libc10_cuda.so ${LIBTORCH}/lib/libtorch.so)
  target_link_options(${target} PRIVATE -Wl,--allow-shlib-undefined)
  lockstep_optimize(${target} -O1)
endforeach()
set_target_properties(null_gpu_watch PROPERTIES OUTPUT_NAME watch LIBRARY_OUTPUT_DIRECTORY ${folder}/torch)
set_target_properties(null_gpu_plants PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${folder}/torch)

# Empty libraries under the names that libtorch opens; the symbols are found in the library above.
set(empty ${folder}/empty.c)
file(CONFIGURE OUTPUT ${empty} CONTENT "")
set(named "")
foreach(name libcudart.so.13 libcuda.so.1 libcublas.so.13 libcublasLt.so.13 libcudnn.so.9 libcusparse.so.12 libcusparseLt.so.0
             libcufft.so.12 libcurand.so.10 libcufile.so.0 libnccl.so.2 libnvrtc.so.13 libnvshmem_host.so.3)
  set(version ${name})
  if(name MATCHES nvshmem)
    set(version NVSHMEM)
  endif()
  file(CONFIGURE OUTPUT ${folder}/${name}.map CONTENT "${version} { };\n")
  add_custom_command(OUTPUT ${folder}/${name} DEPENDS null_gpu ${folder}/${name}.map VERBATIM
    COMMAND ${CMAKE_CXX_COMPILER} -x c ${empty} -shared -Wl,-soname,${name} -Wl,--version-script=${folder}/${name}.map
      -Wl,--no-as-needed -L${folder} -lnull_gpu -Wl,-rpath,$ORIGIN -o ${folder}/${name})
  list(APPEND named ${folder}/${name})
endforeach()
add_custom_target(null_gpu_libraries ALL DEPENDS ${named} null_gpu_watch null_gpu_plants)
