# The operations' benchmarks (Google Benchmark). The side-by-side measurement is bench/run.py.
find_package(benchmark REQUIRED)
add_executable(ops_bench ${CMAKE_SOURCE_DIR}/bench/ops_bench.cpp)
target_link_libraries(ops_bench PRIVATE lockstep_ops lockstep_optim benchmark::benchmark)
lockstep_optimize(ops_bench -O2)
lockstep_precompile(ops_bench)
# Lockstep's side of bench/tokenizer_speed.py.
add_executable(tokenizer_bench ${CMAKE_SOURCE_DIR}/bench/tokenizer_bench.cpp)
lockstep_optimize(tokenizer_bench -O2)
target_link_libraries(tokenizer_bench PRIVATE lockstep_text)
