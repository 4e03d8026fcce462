# Every parser of bytes of unknown origin under libFuzzer, ASan and UBSan (make fuzz): with the preset `fuzz`.
if(LOCKSTEP_SANITIZE STREQUAL "fuzzer")
  # The strict reader of safetensors needs a header of libtorch's, and nothing of its libraries.
  add_executable(fuzz_parsers EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz.cpp
    ${CMAKE_SOURCE_DIR}/tests/fuzz/parsers.cpp ${CMAKE_SOURCE_DIR}/src/checkpoint/safetensors.cpp
    ${CMAKE_SOURCE_DIR}/src/checkpoint/safetensors_parse.cpp ${CMAKE_SOURCE_DIR}/src/checkpoint/dtypes.cpp
    ${CMAKE_SOURCE_DIR}/src/checkpoint/text.cpp)
  target_include_directories(fuzz_parsers PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(fuzz_parsers PRIVATE lockstep_config lockstep_data lockstep_jinja lockstep_launch lockstep_model
    lockstep_text lockstep_watch)
  target_link_options(fuzz_parsers PRIVATE -fsanitize=fuzzer)
endif()
