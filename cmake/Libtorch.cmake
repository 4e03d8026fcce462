# Defines libtorch as an imported target. find_package(Torch) would enable CMake's CUDA language,
# which does not support C++20 for nvcc 13 in CMake 3.25.
if(NOT EXISTS ${LIBTORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no libtorch in ${LIBTORCH}: run `make setup`, or give LIBTORCH=dir")
endif()
add_library(lockstep_libtorch INTERFACE)
target_include_directories(lockstep_libtorch SYSTEM INTERFACE
  ${LIBTORCH}/include ${LIBTORCH}/include/torch/csrc/api/include)
target_compile_definitions(lockstep_libtorch INTERFACE USE_C10D_GLOO)
target_link_libraries(lockstep_libtorch INTERFACE ${LIBTORCH}/lib/libtorch_cpu.so ${LIBTORCH}/lib/libc10.so)
# libtorch's OpenMP runtime, shared by the project's loops (Modules.cmake): a second runtime would
# start its own threads.
file(GLOB LIBTORCH_OPENMP ${LIBTORCH}/lib/libgomp*.so*)
if(NOT LIBTORCH_OPENMP)
  set(LIBTORCH_OPENMP gomp)
endif()
target_link_libraries(lockstep_libtorch INTERFACE ${LIBTORCH_OPENMP})
get_filename_component(libtorch_wheel ${LIBTORCH} DIRECTORY)
set(CMAKE_BUILD_RPATH ${LIBTORCH}/lib ${libtorch_wheel}/nvidia/cu13/lib)
set(CMAKE_INSTALL_RPATH ${CMAKE_BUILD_RPATH})
# The wheel's libtorch_cpu.so needs two CUDA libraries from the neighboring nvidia folder.
target_link_options(lockstep_libtorch INTERFACE
  -Wl,-rpath-link,${LIBTORCH}/lib -Wl,-rpath-link,${libtorch_wheel}/nvidia/cu13/lib)
