# The modules of src/, one library per folder.
# TORCH: the module may use libtorch.
# OPTIMIZE: -O3 for hot loops, -O1 for code that is never hot; default -O2.
# DEPENDS: exactly the modules that it includes. tools/check_includes.py verifies these lines.
# TESTS: additional modules that its tests include.
# lockstep_rooms(MODULE folder[:included,folders]...): the folders of a module and what each includes, bottom first. "top" is the
# files outside any folder. The same check verifies these lines.
lockstep_module(base OPTIMIZE -O1)
# Every byte of a checkpoint passes through these loops.
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
lockstep_module(launch OPTIMIZE -O1 DEPENDS base config)
lockstep_rooms(launch system top:system workers:system plan:system,workers agent:system,workers,plan frontends:system,workers,plan,agent
  doctor:system,workers,plan)
if(TARGET launch_test)
  add_executable(store_client ${CMAKE_SOURCE_DIR}/tests/store_client.cpp)
  target_link_libraries(store_client PRIVATE lockstep_comm lockstep_launch)
  lockstep_optimize(store_client -O1)
  lockstep_precompile(store_client)
  target_compile_definitions(launch_test PRIVATE LOCKSTEP_STORE_CLIENT="$<TARGET_FILE:store_client>")
  # Sanitizer builds contain only what does not use libtorch (tools/sanitizers.py).
  if(NOT LOCKSTEP_SANITIZE)
    add_dependencies(launch_test store_client)
  endif()
endif()
# Rank 0 hosts the launcher's store if no launcher does.
lockstep_module(comm TORCH DEPENDS base launch)
lockstep_module(ops TORCH DEPENDS base)
lockstep_rooms(ops cpu top:cpu)
# Only these files are compiled for AVX2, AVX-512, AVX512-BF16 and AMX. Their functions are called
# only on CPUs that support the instructions (src/ops/cpu/machine.h).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB avx512_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cpu/*_avx512.cpp)
  # GCC 12 warns about deliberately undefined values in its own headers.
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
# The library for libtorch programs of other projects, in addition to the modules' public headers.
lockstep_rooms(train machine gguf batches:machine weights:machine tasks:machine,batches,weights judgement:batches
  top:machine,gguf,batches,weights,tasks,judgement)
lockstep_module(library TORCH OPTIMIZE -O1 DEPENDS base comm launch data ops checkpoint parallel train)
lockstep_program(start lockstep OPTIMIZE -O1 DEPENDS base config text model plan data monitor watch launch)
include(RayDriver)
include(Examples)
# ncurses for `lockstep monitor --tui`. Only one file includes its header, which defines many names.
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

# at::parallel_for is inlined into its callers and runs single-threaded without OpenMP. Targets with
# a precompiled header are excluded because the header would need OpenMP too, and so is Clang, which
# only builds the fuzzers and has another runtime.
foreach(name ops optim)
  target_compile_options(lockstep_${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fopenmp>)
endforeach()

# GCC 12 warns about overlapping copies in std::string that do not overlap (GCC bug 105651).
foreach(name config launch start cli)
  target_compile_options(lockstep_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
endforeach()

# Runs the plan tests again as on GPUs: over a backend with NCCL's rules (tests/comm/like_nccl.h),
# and the tables of plans also without the CPU-only loops. `make test` excludes the label `long`.
if(TARGET parallel_test)
  target_sources(parallel_test PRIVATE ${CMAKE_SOURCE_DIR}/tests/comm/like_nccl.cpp)
  function(lockstep_as_on_gpus name environment filter)
    add_test(NAME parallel.${name} COMMAND parallel_test --gtest_filter=${filter} --gtest_brief=1)
    set_tests_properties(parallel.${name} PROPERTIES TIMEOUT 1800 COST 150 PROCESSORS 2 LABELS "${ARGN}"
      ENVIRONMENT "TORCH_FR_BUFFER_SIZE=0;OMP_NUM_THREADS=1;${environment}")
  endfunction()
  set(rules LOCKSTEP_TEST_BACKEND=like-nccl)
  lockstep_as_on_gpus(nccl_rules ${rules} "Pipeline.*:*tied_llama:Sequential*:ContextParallel*")
  # The memory account counts per thread, and with this backend the threads hold each other's
  # memory.
  set(tables "PlanTable.*:ZeroPlans.*:*Pipeline*:ContextParallel*")
  lockstep_as_on_gpus(nccl_rules_all ${rules} "-MemoryAccount.*:*tied_llama:Sequential*:${tables}" long)
  lockstep_as_on_gpus(plain_operations "${rules};LOCKSTEP_PLAIN_OPS=1" "${tables}" long)
endif()

include(Install)
if(TARGET lockstep)
  include(ProgramTests)
endif()
# Libraries that the program loads at run time.
add_custom_target(accelerators ALL)
if(LOCKSTEP_CUDA)
  include(Cuda)
endif()
if(TARGET lockstep_cuda)
  include(NullGpu)
endif()
include(Bench)
