# Debian packages, linked statically so that the program depends on libtorch alone. CMAKE_PREFIX_PATH
# names other folders to search first.
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(GTest REQUIRED)
set(LOCKSTEP_STATIC_LIBRARIES yaml-cpp zstd z xxhash pcre2-8 sodium uring)
add_library(lockstep_dependencies INTERFACE)
foreach(name IN LISTS LOCKSTEP_STATIC_LIBRARIES)
  find_library(library_${name} NAMES lib${name}.a ${name} REQUIRED)
  target_link_libraries(lockstep_dependencies INTERFACE ${library_${name}})
endforeach()
foreach(header IN ITEMS yaml-cpp/yaml.h zstd.h zlib.h xxhash.h pcre2.h sodium.h liburing.h CLI/CLI.hpp gloo/config.h elfutils/libdwfl.h
    curl/curl.h curses.h)
  string(MAKE_C_IDENTIFIER ${header} name)
  find_path(include_${name} ${header} REQUIRED)
  target_include_directories(lockstep_dependencies SYSTEM INTERFACE ${include_${name}})
endforeach()
target_link_libraries(lockstep_dependencies INTERFACE nlohmann_json::nlohmann_json Threads::Threads)
# fmt comes with libtorch; Debian's version is older and would conflict. base/format.cpp compiles
# the non-inline part.
target_include_directories(lockstep_dependencies SYSTEM INTERFACE ${LIBTORCH}/include)

# The tests' main() exits without running libtorch's destructors, which take 0.1 s.
add_library(lockstep_gtest STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/main.cpp)
target_link_libraries(lockstep_gtest PUBLIC GTest::gtest GTest::gmock)
