# Flags of our own code. Third-party headers come as SYSTEM and are not warned about.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# How much is optimized is each module's own to say (Modules.cmake).
set(CMAKE_CXX_FLAGS_RELEASE "-DNDEBUG")
option(LOCKSTEP_UNITY "Compile several files of a module as one: a cold build takes a tenth of the time" ON)
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(CCACHE ccache)
if(CCACHE)
  # pch_defines and time_macros let ccache keep objects that use the precompiled header; what a file depends on is told by the
  # compiler, so that nothing is preprocessed for the cache alone.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

# GCC looks for garbage in its own memory each time that it has grown by half, libtorch's headers included: a sixth of the
# processor time of our larger files. Where two compilers find 3 GB each, they do without.
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
  # A program that is broken into jumps nowhere that is known beforehand, and its tables cannot be written.
  target_link_options(lockstep_compiler INTERFACE -Wl,-z,relro,-z,now $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>)
else()
  target_link_options(lockstep_compiler INTERFACE -Wl,-z,norelro,-z,lazy $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()

# What reads bytes of unknown origin without libtorch checks indices, copies and stacks in releases too. Modules that
# use libtorch share one precompiled header, so their flags are the same for all, and their loops are the hot ones.
add_library(lockstep_hardened INTERFACE)
if(LOCKSTEP_HARDENING)
  target_compile_options(lockstep_hardened INTERFACE
    "$<$<CONFIG:Release>:-D_GLIBCXX_ASSERTIONS;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2;-fstack-protector-strong>")
else()
  # GCC 12 takes an optional that is asked before it is read for one that is not.
  target_compile_options(lockstep_hardened INTERFACE -Wno-maybe-uninitialized)
endif()

set(LOCKSTEP_SANITIZE "" CACHE STRING "address, thread, or fuzzer: libFuzzer with the first (Clang)")
if(LOCKSTEP_SANITIZE)
  set(sanitize -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  if(LOCKSTEP_SANITIZE STREQUAL "fuzzer")
    set(sanitize -fsanitize=fuzzer-no-link,address -fno-omit-frame-pointer)
  endif()
  if(NOT LOCKSTEP_SANITIZE STREQUAL "thread")
    # What is undefined ends the program: a test that only prints it would pass.
    list(APPEND sanitize -fsanitize=undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(lockstep_compiler INTERFACE ${sanitize})
  target_link_options(lockstep_compiler INTERFACE ${sanitize})
endif()
