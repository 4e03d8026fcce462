# The modules of src/, one library a folder. TORCH: the module may use libtorch.
# OPTIMIZE: -O3 where our own loops are hot, -O1 where nothing is, else -O2.
# DEPENDS is the list of modules that it includes, no more and no fewer: tools/check_includes.py reads these lines.
# TESTS: what its tests include besides.
# lockstep_rooms(MODULE room[:rooms,that,it,includes]...): a module's folders, bottom first. "top" is its files outside
# of them. The same check reads these lines.
lockstep_module(base OPTIMIZE -O1)
# Every byte of a save goes through their loops.
set(byte_loops ${CMAKE_SOURCE_DIR}/src/base/byte_loops.cpp ${CMAKE_SOURCE_DIR}/src/base/byte_loops_avx2.cpp)
set_source_files_properties(${byte_loops} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>"
  SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/base/byte_loops_avx2.cpp APPEND PROPERTY COMPILE_OPTIONS -mavx2)
endif()
lockstep_module(mesh OPTIMIZE -O1 DEPENDS base)
lockstep_module(config OPTIMIZE -O1 DEPENDS base mesh)
lockstep_rooms(config core hydra:core compat:core,hydra top:core,hydra,compat)
lockstep_module(schedule OPTIMIZE -O1 DEPENDS base)
lockstep_module(text OPTIMIZE -O3 DEPENDS base)
lockstep_rooms(text unicode models:unicode stages:unicode,models top:unicode,models,stages)
lockstep_module(jinja OPTIMIZE -O1 DEPENDS base text)
lockstep_module(objects OPTIMIZE -O1 DEPENDS base)
lockstep_module(model OPTIMIZE -O1 DEPENDS base objects)
lockstep_module(plan OPTIMIZE -O1 DEPENDS base config mesh schedule model)
lockstep_rooms(plan workload machines from_config:workload memory:workload,machines cost:workload,machines top:workload,machines,memory,cost)
lockstep_module(data OPTIMIZE -O1 DEPENDS base text jinja objects)
lockstep_module(monitor OPTIMIZE -O1 DEPENDS base)
target_compile_definitions(lockstep_monitor PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}")
lockstep_module(watch DEPENDS base config monitor)
include(Page)
lockstep_rooms(watch record control page:record)
lockstep_module(metrics OPTIMIZE -O1 DEPENDS base)
lockstep_module(comm TORCH DEPENDS base TESTS launch)
lockstep_module(launch OPTIMIZE -O1 DEPENDS base config)
lockstep_rooms(launch system top:system workers:system plan:system,workers agent:system,workers,plan frontends:system,workers,plan,agent
  doctor:system,workers,plan)
if(TARGET launch_test)
  add_executable(store_client ${CMAKE_SOURCE_DIR}/tests/store_client.cpp)
  target_link_libraries(store_client PRIVATE lockstep_comm lockstep_launch)
  lockstep_optimize(store_client -O1)
  lockstep_precompile(store_client)
  target_compile_definitions(launch_test PRIVATE LOCKSTEP_STORE_CLIENT="$<TARGET_FILE:store_client>")
  # A build with sanitizers runs what has no libtorch (tools/sanitizers.py).
  if(NOT LOCKSTEP_SANITIZE)
    add_dependencies(launch_test store_client)
  endif()
endif()
lockstep_module(ops TORCH DEPENDS base)
lockstep_rooms(ops cpu top:cpu)
# Files of AVX2, AVX-512, AVX512-BF16 and AMX, whose functions are called where the processor has these
# (src/ops/cpu/machine.h). Nothing else is compiled with their flags.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB avx512_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cpu/*_avx512.cpp)
  # GCC 12 takes the undefined values of its own headers for mistakes.
  set_source_files_properties(${avx512_files} PROPERTIES COMPILE_OPTIONS
    "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mfma;-mamx-tile;-mamx-bf16;-fno-exceptions;-Wno-maybe-uninitialized")
  file(GLOB avx2_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cpu/*_avx2.cpp)
  set_source_files_properties(${avx2_files} PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-fno-exceptions")
endif()
lockstep_module(nn TORCH OPTIMIZE -O1 DEPENDS base model ops)
lockstep_module(objective TORCH OPTIMIZE -O1 DEPENDS base model nn ops)
lockstep_module(optim TORCH DEPENDS base mesh ops)
lockstep_module(checkpoint TORCH OPTIMIZE -O1 DEPENDS base objects mesh comm ops TESTS model)
lockstep_module(parallel TORCH OPTIMIZE -O1 DEPENDS base mesh schedule model comm ops nn objective optim
  TESTS checkpoint)
lockstep_rooms(parallel autograd ranks offload one_process tensor:autograd,ranks expert:ranks context:ranks pipeline:autograd recompute:autograd
  data:autograd,ranks,offload top:autograd,ranks,offload,tensor,expert,context,pipeline,recompute,data)
lockstep_module(train TORCH OPTIMIZE -O1
  DEPENDS base config schedule text objects model plan data monitor watch metrics comm ops nn objective optim checkpoint parallel)
# What libtorch programs of other projects use, beside the modules' own headers.
lockstep_rooms(train machine gguf batches:machine weights:machine tasks:machine,batches,weights judgement:batches
  top:machine,gguf,batches,weights,tasks,judgement)
lockstep_module(library TORCH OPTIMIZE -O1 DEPENDS base comm launch data ops checkpoint parallel train)
lockstep_program(start lockstep OPTIMIZE -O1 DEPENDS base config text model plan data monitor watch launch)
include(RayDriver)
# The terminal of `lockstep monitor --tui`. Its header's names stay in the one file that includes it.
foreach(name ncursesw tinfo)
  find_library(library_${name} NAMES lib${name}.a ${name} REQUIRED)
  target_link_libraries(lockstep_start PRIVATE ${library_${name}})
endforeach()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/start/terminal.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
lockstep_program(cli lockstep-core TORCH OPTIMIZE -O1 DEPENDS
  base config schedule text model plan data monitor watch comm launch ops nn optim checkpoint parallel train library start)
if(TARGET lockstep)
  add_dependencies(lockstep lockstep-core)
endif()

# at::parallel_for is compiled into its callers, and without OpenMP it is a loop of one thread. Not where a header is
# precompiled, which would have to be compiled with it too; Clang only makes what is fuzzed, and its runtime would be another.
foreach(name ops optim)
  target_compile_options(lockstep_${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fopenmp>)
endforeach()

# GCC 12 sees overlapping copies in std::string where there are none (GCC bug 105651).
foreach(name config launch start cli)
  target_compile_options(lockstep_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
endforeach()

# The tests of plans once more, as GPUs run them: over a backend with NCCL's rules (tests/comm/like_nccl.h), and the tables
# without the loops that only processors have as well. The label `long` is not part of `make test`.
if(TARGET parallel_test)
  target_sources(parallel_test PRIVATE ${CMAKE_SOURCE_DIR}/tests/comm/like_nccl.cpp)
  function(lockstep_as_on_gpus name environment filter)
    add_test(NAME parallel.${name} COMMAND parallel_test --gtest_filter=${filter} --gtest_brief=1)
    set_tests_properties(parallel.${name} PROPERTIES TIMEOUT 1800 COST 150 PROCESSORS 2 LABELS "${ARGN}"
      ENVIRONMENT "TORCH_FR_BUFFER_SIZE=0;OMP_NUM_THREADS=1;${environment}")
  endfunction()
  set(rules LOCKSTEP_TEST_BACKEND=like-nccl)
  lockstep_as_on_gpus(nccl_rules ${rules} "Pipeline.*:*tied_llama:Sequential*:ContextParallel*")
  # The account counts what a thread holds, and this backend's threads hold each other's.
  set(tables "PlanTable.*:ZeroPlans.*:*Pipeline*:ContextParallel*")
  lockstep_as_on_gpus(nccl_rules_all ${rules} "-MemoryAccount.*:*tied_llama:Sequential*:${tables}" long)
  lockstep_as_on_gpus(plain_operations "${rules};LOCKSTEP_PLAIN_OPS=1" "${tables}" long)
endif()

include(Install)
if(TARGET lockstep)
  include(ProgramTests)
endif()
# What the program loads on machines with GPUs.
add_custom_target(accelerators ALL)
if(LOCKSTEP_CUDA)
  include(Cuda)
endif()
if(TARGET lockstep_cuda)
  include(NullGpu)
endif()
include(Bench)
