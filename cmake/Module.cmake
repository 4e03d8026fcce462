# lockstep_module(NAME [TORCH] [OPTIMIZE -O1|-O3] [DEPENDS modules...] [TESTS modules...])
#   Defines the library lockstep_NAME from src/NAME/**.cpp and the test program NAME_test from tests/NAME/*_test.cpp. CTest runs
#   one test per file if the module uses libtorch, and one per GoogleTest test otherwise.
# lockstep_program(FOLDER PROGRAM [TORCH] [OPTIMIZE ...] [DEPENDS modules...])
#   The same, and the program from src/FOLDER/main.cpp.
include(GoogleTest)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# Modules whose test results depend on the CPU's instruction set and the number of threads. They get
# the CTest label `processor`, which tools/test_processors.sh runs under several of both.
set(lockstep_processor_tests ops nn optim parallel library)
# Modules whose tests mostly wait for timers and processes. Each takes one CTest slot instead of
# two, so that tools/run_tests.py runs one of them alongside tests that compute.
set(lockstep_waiting_tests launch comm checkpoint)

# For modules listed here, the ThreadSanitizer build contains only the tests that use threads or
# several processes.
set(lockstep_threads_data loader|labelled_rows)
set(lockstep_threads_launch checkup|coordinator|hanging|job_store|launch|output|supervisor|waiting|watchdog)

set(lockstep_united_bytes 300000)
set(lockstep_united_bytes_with_torch 220000)

# Targets that use libtorch share one precompiled header, because libtorch's headers take longer to
# compile than the project's code. GCC compiles all code with the precompiled header's optimization
# level, so only -O1 targets use it.
function(lockstep_precompile target)
  if(LOCKSTEP_SANITIZE)  # sanitizer builds compile only one file that would use it (tools/sanitizers.py)
    return()
  endif()
  if(NOT TARGET lockstep_torch_headers)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_headers.cpp CONTENT "")
    add_library(lockstep_torch_headers STATIC ${CMAKE_BINARY_DIR}/torch_headers.cpp)
    target_link_libraries(lockstep_torch_headers PUBLIC lockstep_compiler lockstep_libtorch)
    lockstep_optimize(lockstep_torch_headers -O1)
    target_precompile_headers(lockstep_torch_headers PRIVATE <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM lockstep_torch_headers)
  # At -O1 GCC warns about reading std::optional values that may be empty.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endfunction()

# Sets the optimization level of a target in release builds.
function(lockstep_optimize target level)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
endfunction()

# Compiles the files of a target as unity groups of about `limit` bytes each, in order and of equal
# size. In small groups most of the compile time goes to shared headers and templates (standard
# library, JSON, fmt).
function(lockstep_unite target limit)
  if(NOT LOCKSTEP_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A class in a source file may have members whose types are in the file's unnamed namespace.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  set(total 0)
  foreach(source IN LISTS ARGN)
    file(SIZE ${source} size)
    math(EXPR total "${total} + ${size}")
  endforeach()
  math(EXPR groups "(${total} + ${limit} / 2) / ${limit}")
  set(before 0)
  foreach(source IN LISTS ARGN)
    math(EXPR group "${before} * ${groups} / (${total} + 1)")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${group})
    file(SIZE ${source} size)
    math(EXPR before "${before} + ${size}")
  endforeach()
endfunction()

function(lockstep_library name)
  cmake_parse_arguments(arg "TORCH" "OPTIMIZE" "DEPENDS;TESTS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/src/${name}/main.cpp)
  if(NOT sources)
    add_library(lockstep_${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(lockstep_${name} STATIC ${sources})
    set(scope PUBLIC)
    if(NOT arg_OPTIMIZE)
      set(arg_OPTIMIZE -O2)
    endif()
    set(unite ${lockstep_united_bytes})
    if(arg_TORCH)
      set(unite ${lockstep_united_bytes_with_torch})
    endif()
    lockstep_optimize(lockstep_${name} ${arg_OPTIMIZE})
    # Vectorizes loops as -O3 does; -O2 alone vectorizes only if the code does not grow.
    if(arg_OPTIMIZE STREQUAL "-O2")
      target_compile_options(lockstep_${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-fvect-cost-model=dynamic>)
    endif()
    lockstep_unite(lockstep_${name} ${unite} ${sources})
  endif()
  target_include_directories(lockstep_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  list(TRANSFORM arg_DEPENDS PREPEND lockstep_ OUTPUT_VARIABLE libraries)
  target_link_libraries(lockstep_${name} ${scope} ${libraries} lockstep_compiler lockstep_dependencies)
  if(arg_TORCH)
    target_link_libraries(lockstep_${name} ${scope} lockstep_libtorch)
    if(sources AND arg_OPTIMIZE STREQUAL "-O1")
      lockstep_precompile(lockstep_${name})
    endif()
  elseif(sources)
    target_link_libraries(lockstep_${name} PRIVATE $<BUILD_INTERFACE:lockstep_hardened>)
  endif()
endfunction()

function(lockstep_tests name)
  cmake_parse_arguments(arg "TORCH" "OPTIMIZE" "DEPENDS;TESTS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  if(LOCKSTEP_SANITIZE STREQUAL "thread" AND lockstep_threads_${name})
    set(tests ${sources})
    list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
    list(REMOVE_ITEM sources ${tests})
    list(FILTER tests INCLUDE REGEX "/(${lockstep_threads_${name}})_test\\.cpp$")
    list(APPEND sources ${tests})
  endif()
  add_executable(${name}_test ${sources})
  list(TRANSFORM arg_TESTS PREPEND lockstep_ OUTPUT_VARIABLE libraries)
  target_link_libraries(${name}_test PRIVATE lockstep_${name} ${libraries} lockstep_gtest)
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name}_test PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    LOCKSTEP_PROGRAM="${CMAKE_BINARY_DIR}/lockstep")
  lockstep_optimize(${name}_test -O1)
  if(LOCKSTEP_SANITIZE STREQUAL "fuzzer")
    target_compile_options(${name}_test PRIVATE -O0)  # only fuzzed code has to be fast
  endif()
  if(arg_TORCH)
    lockstep_unite(${name}_test ${lockstep_united_bytes_with_torch} ${sources})
    lockstep_precompile(${name}_test)
  else()
    lockstep_unite(${name}_test ${lockstep_united_bytes} ${sources})
  endif()
  set(slots 2)
  if(name IN_LIST lockstep_waiting_tests)
    set(slots 1)
  endif()
  if(NOT arg_TORCH)
    gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST TEST_PREFIX ${name}.
      # One variable per property: given a list, gtest_discover_tests would use the first entry and drop the
      # rest.
      PROPERTIES TIMEOUT 300 PROCESSORS ${slots} ENVIRONMENT OMP_NUM_THREADS=1 ENVIRONMENT_MODIFICATION TORCH_FR_BUFFER_SIZE=set:0)
    return()
  endif()
  set(list ${CMAKE_BINARY_DIR}/${name}_suites.cmake)
  set(label "")
  if(name IN_LIST lockstep_processor_tests)
    set(label processor)
  endif()
  add_custom_command(TARGET ${name}_test POST_BUILD VERBATIM
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/list_tests.py $<TARGET_FILE:${name}_test> ${name}. ${list} ${slots} "${label}"
      ${CMAKE_CROSSCOMPILING_EMULATOR})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}_tests.cmake CONTENT
    "if(EXISTS ${list})\n  include(${list})\nelse()\n  add_test(${name}_test_NOT_BUILT ${name}_test_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_BINARY_DIR}/${name}_tests.cmake)
endfunction()

function(lockstep_module name)
  lockstep_library(${name} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY lockstep_modules ${name})
  lockstep_tests(${name} ${ARGN})
endfunction()

# Read only by tools/check_includes.py.
function(lockstep_rooms)
endfunction()

function(lockstep_program folder program)
  lockstep_library(${folder} ${ARGN})
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/${folder}/main.cpp)
    add_executable(${program} ${CMAKE_SOURCE_DIR}/src/${folder}/main.cpp)
    target_link_libraries(${program} PRIVATE lockstep_${folder})
    lockstep_optimize(${program} -O1)
    target_compile_definitions(${program} PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}")
  endif()
  lockstep_tests(${folder} ${ARGN})
  if(TARGET ${folder}_test AND TARGET ${program})
    add_dependencies(${folder}_test ${program})
  endif()
endfunction()
