# Benchmark programs, which are not part of the product.

# Compares predictions with published runs and fits the cost model to them. Its tests run with all
# others.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/published_runs/*.cpp)
list(FILTER sources EXCLUDE REGEX /main.cpp$)
add_library(lockstep_published_runs STATIC EXCLUDE_FROM_ALL ${sources})
lockstep_optimize(lockstep_published_runs -O2)
lockstep_unite(lockstep_published_runs ${lockstep_united_bytes} ${sources})
target_include_directories(lockstep_published_runs PUBLIC ${CMAKE_SOURCE_DIR}/bench)
target_link_libraries(lockstep_published_runs PUBLIC lockstep_plan lockstep_data)
add_executable(published_runs EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/published_runs/main.cpp)
lockstep_optimize(published_runs -O1)
target_link_libraries(published_runs PRIVATE lockstep_published_runs)
lockstep_tests(published_runs)
if(NOT LOCKSTEP_BENCH)
  return()
endif()

# Benchmarks of the operations (Google Benchmark). bench/run.py compares whole runs.
find_package(benchmark REQUIRED)
add_executable(ops_bench ${CMAKE_SOURCE_DIR}/bench/ops_bench.cpp)
target_link_libraries(ops_bench PRIVATE lockstep_ops lockstep_optim benchmark::benchmark)
lockstep_optimize(ops_bench -O2)
# Lockstep's side of bench/tokenizer_speed.py.
add_executable(tokenizer_bench ${CMAKE_SOURCE_DIR}/bench/tokenizer_bench.cpp)
lockstep_optimize(tokenizer_bench -O2)
target_link_libraries(tokenizer_bench PRIVATE lockstep_data)
