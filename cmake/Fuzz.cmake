# Builds every parser of untrusted input under ASan and UBSan. The preset `fuzz` uses libFuzzer
# (make fuzz). The preset `asan` builds a program that replays the seeds and all inputs that ever
# revealed a defect (make sanitizers), with any compiler.
if(LOCKSTEP_SANITIZE MATCHES "^(fuzzer|address)$")
  # The strict safetensors reader needs one libtorch header and none of its libraries.
  set(fuzz_checkpoint safetensors safetensors_parse dtypes text manifest_text shard_index page_sum)
  list(TRANSFORM fuzz_checkpoint REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/checkpoint/\\1.cpp")
  set(fuzz_sources ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz.cpp ${CMAKE_SOURCE_DIR}/tests/fuzz/parsers.cpp ${CMAKE_SOURCE_DIR}/tests/fuzz/files.cpp
    ${CMAKE_SOURCE_DIR}/tests/fuzz/coordinator.cpp ${CMAKE_SOURCE_DIR}/tests/fuzz/records.cpp ${fuzz_checkpoint})
  if(LOCKSTEP_SANITIZE STREQUAL "address")
    list(APPEND fuzz_sources ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.cpp)
  endif()
  add_executable(fuzz_parsers EXCLUDE_FROM_ALL ${fuzz_sources})
  lockstep_unite(fuzz_parsers ${lockstep_united_bytes} ${fuzz_checkpoint})
  target_include_directories(fuzz_parsers PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(fuzz_parsers PRIVATE lockstep_config lockstep_data lockstep_jinja lockstep_launch lockstep_model
    lockstep_monitor lockstep_plan lockstep_schedule lockstep_text lockstep_watch)
  if(LOCKSTEP_SANITIZE STREQUAL "fuzzer")
    target_sources(fuzz_parsers PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/counters.cpp)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/fuzz/counters.cpp PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
    target_link_options(fuzz_parsers PRIVATE -fsanitize=fuzzer)
    set(compared cmp1 cmp2 cmp4 cmp8 const_cmp1 const_cmp2 const_cmp4 const_cmp8 switch)
    list(TRANSFORM compared PREPEND __sanitizer_cov_trace_)
    foreach(name __sanitizer_cov_8bit_counters_init __sanitizer_cov_pcs_init LLVMFuzzerTestOneInput ${compared})
      target_link_options(fuzz_parsers PRIVATE -Wl,--wrap=${name})
    endforeach()
  endif()
endif()
