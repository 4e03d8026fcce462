# Tests that run the program as users do: one Python file (standard library only) per subject. The long tests of a file are a separate
# CTest test. A file whose tests are all skipped counts as skipped.
set(run_file ${CMAKE_SOURCE_DIR}/tests/program/run.py)
file(GLOB program_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/program/test_*.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${program_tests} ${run_file})
execute_process(COMMAND ${Python3_EXECUTABLE} -B ${run_file} list ${program_tests} OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" listed "${listed}")
foreach(line IN LISTS listed)
  if(NOT line MATCHES "^test_([a-z0-9_]+) (short|long)$")
    continue()
  endif()
  set(kind ${CMAKE_MATCH_2})
  set(file ${CMAKE_SOURCE_DIR}/tests/program/test_${CMAKE_MATCH_1}.py)
  set(name program.${CMAKE_MATCH_1})
  if(kind STREQUAL long)
    string(APPEND name .long)
  endif()
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${run_file} ${kind} ${file})
  # These tests take longest, so CTest starts them first.
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 PROCESSORS 2 COST 100 SKIP_RETURN_CODE 77
    ENVIRONMENT "LOCKSTEP_PROGRAM=$<TARGET_FILE:lockstep>;PYTHONDONTWRITEBYTECODE=1")
  if(kind STREQUAL long)
    set_tests_properties(${name} PROPERTIES LABELS long)
  endif()
endforeach()
set_tests_properties(program.stores PROPERTIES COST 120)  # the slowest
set_tests_properties(program.gpu PROPERTIES LABELS gpu)
set_tests_properties(program.gpu.long PROPERTIES LABELS "gpu;long")
foreach(name classification parallel pipeline plans predict preference ranks resume t5 unlearning use zero)  # these compare numbers
  set_tests_properties(program.${name} PROPERTIES LABELS processor)
endforeach()

# Rendezvous of simulated nodes (make bench-agents). Above 257 nodes, no node checks connections to
# all others.
foreach(nodes IN ITEMS 300 1024)
  add_test(NAME program.${nodes}_nodes
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/bench/agents.py --program $<TARGET_FILE:lockstep> --nodes ${nodes} --secret)
  set_tests_properties(program.${nodes}_nodes PROPERTIES TIMEOUT 120)
endforeach()
set_tests_properties(program.1024_nodes PROPERTIES LABELS long)

# One injected fault of each kind, lost hosts, and flipped bits (make soak, hosts and flips run
# more).
add_test(NAME program.soak COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/soak/soak.py --faults 18 --seed 1)
add_test(NAME program.hosts COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/soak/hosts.py --losses 4 --seed 1)
add_test(NAME program.flips COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/soak/flips.py --trials 3 --seed 1)
# Each rank is slow in one way; the report must name the rank and the reason.
add_test(NAME program.slow_ranks COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/soak/slow_ranks.py)
set_tests_properties(program.soak program.hosts program.flips program.slow_ranks PROPERTIES TIMEOUT 900 LABELS long COST 130
  ENVIRONMENT "LOCKSTEP_PROGRAM=$<TARGET_FILE:lockstep>;PYTHONDONTWRITEBYTECODE=1")

# `make unlearn-demo` on generated rows for one epoch; only its completion is checked.
add_test(NAME program.unlearn_demo
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/unlearn_demo.py $<TARGET_FILE:lockstep> ${CMAKE_BINARY_DIR}/unlearn-demo --epochs 1)
set_tests_properties(program.unlearn_demo PROPERTIES TIMEOUT 300 LABELS long COST 130)

# Tests of cluster engines and of the container image (make test-engines): they take minutes and
# need the engines to be installed. Ray may be in the environment of `tools/setup.sh engines` or in
# the current Python.
file(GLOB engine_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/engines/test_*.py)
foreach(file IN LISTS engine_tests)
  get_filename_component(name ${file} NAME_WE)
  string(REPLACE test_ "" name ${name})
  add_test(NAME engines.${name} COMMAND sh -c
    "own=${CMAKE_SOURCE_DIR}/.deps/engines/bin/python; [ -x $own ] || own=${Python3_EXECUTABLE}; exec $own ${run_file} short ${file}")
  set_tests_properties(engines.${name} PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS engines RUN_SERIAL ON
    ENVIRONMENT "LOCKSTEP_PROGRAM=$<TARGET_FILE:lockstep>;PYTHONDONTWRITEBYTECODE=1")
endforeach()

# Checks that the table of families in docs/models.md matches the tests.
add_test(NAME docs.support_table COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/support_table.py
  ${CMAKE_BINARY_DIR} --check)

# Compiles and runs the README's example.
add_executable(example_ten_lines ${CMAKE_SOURCE_DIR}/examples/ten_lines.cpp)
target_link_libraries(example_ten_lines PRIVATE lockstep_parallel)
lockstep_optimize(example_ten_lines -O1)
lockstep_precompile(example_ten_lines)
add_test(NAME examples.ten_lines COMMAND example_ten_lines)
set_tests_properties(examples.ten_lines PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1")

# A complete trainer on the installed headers, as another project would build it;
# tests/program/test_one_file.py runs it.
add_executable(example_one_file ${CMAKE_SOURCE_DIR}/examples/one_file.cpp)
set_source_files_properties(${CMAKE_SOURCE_DIR}/examples/one_file.cpp PROPERTIES OBJECT_DEPENDS ${CMAKE_BINARY_DIR}/include/.stamp)
target_include_directories(example_one_file PRIVATE ${CMAKE_BINARY_DIR}/include)
target_link_libraries(example_one_file PRIVATE lockstep_library)
lockstep_optimize(example_one_file -O1)
lockstep_precompile(example_one_file)
