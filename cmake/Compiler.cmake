# Compiler flags for the project's code. Third-party headers are SYSTEM headers and cause no
# warnings.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Each module sets its own optimization level (Modules.cmake).
set(CMAKE_CXX_FLAGS_RELEASE "-DNDEBUG")
option(LOCKSTEP_UNITY "Compile several files of a module as one: a cold build takes a tenth of the time" ON)
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(CCACHE ccache)
if(CCACHE)
  # pch_defines and time_macros let ccache store objects that use the precompiled header. In depend
  # mode the compiler reports dependencies, so nothing is preprocessed only for the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

# GCC collects garbage each time its heap has grown by half, including libtorch's headers: a sixth
# of the compile time of large files. If two compilers fit in 3 GB each, garbage collection is
# disabled.
cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND memory GREATER 7000)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-expand=10000 --param ggc-min-heapsize=3000000>")
endif()

# A user's compiler may be newer than ours and warn about more, so only .ci/run and the developer preset set this.
option(LOCKSTEP_WERROR "Treat compiler warnings as errors" OFF)
add_library(lockstep_compiler INTERFACE)
# -fPIC for programs too (CMake's default is -fPIE), so that all share one precompiled header.
target_compile_options(lockstep_compiler INTERFACE -Wall -Wextra -fno-math-errno -fPIC)
if(LOCKSTEP_WERROR AND NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(lockstep_compiler INTERFACE -Werror)
endif()
if(CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lockstep_compiler INTERFACE -fpch-preprocess)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(lockstep_compiler INTERFACE -Wno-unused-command-line-argument)
endif()
option(LOCKSTEP_HARDENING "What makes defects harder to use; OFF: to measure what it costs" ON)
if(LOCKSTEP_HARDENING)
  # Position-independent executables and read-only relocation tables make memory errors harder to
  # exploit.
  target_link_options(lockstep_compiler INTERFACE -Wl,-z,relro,-z,now $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>)
else()
  target_link_options(lockstep_compiler INTERFACE -Wl,-z,norelro,-z,lazy $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()

# Modules without libtorch parse untrusted input, so release builds also check indices, copies and
# stacks. Modules with libtorch share one precompiled header and therefore one set of flags, and
# hold the hot loops.
add_library(lockstep_hardened INTERFACE)
if(LOCKSTEP_HARDENING)
  target_compile_options(lockstep_hardened INTERFACE
    "$<$<CONFIG:Release>:-D_GLIBCXX_ASSERTIONS;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2;-fstack-protector-strong>")
else()
  # GCC 12 warns about std::optional values that are checked before use.
  target_compile_options(lockstep_hardened INTERFACE -Wno-maybe-uninitialized)
endif()

set(LOCKSTEP_SANITIZE "" CACHE STRING "address, thread, or fuzzer: libFuzzer with the first (Clang)")
if(LOCKSTEP_SANITIZE)
  set(sanitize -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  if(LOCKSTEP_SANITIZE STREQUAL "fuzzer")
    set(sanitize -fsanitize=fuzzer-no-link,address -fno-omit-frame-pointer)
  endif()
  if(NOT LOCKSTEP_SANITIZE STREQUAL "thread")
    # Undefined behavior aborts the program, because a test that only prints it would pass.
    list(APPEND sanitize -fsanitize=undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(lockstep_compiler INTERFACE ${sanitize})
  target_link_options(lockstep_compiler INTERFACE ${sanitize})
endif()
