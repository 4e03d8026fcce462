# Debian's packages. Their static archives are taken, so that the program depends on libtorch alone.
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(GTest REQUIRED)
set(LOCKSTEP_STATIC_LIBRARIES yaml-cpp zstd z xxhash pcre2-8 sodium uring)
add_library(lockstep_dependencies INTERFACE)
foreach(name IN LISTS LOCKSTEP_STATIC_LIBRARIES)
  find_library(library_${name} NAMES lib${name}.a ${name} REQUIRED)
  target_link_libraries(lockstep_dependencies INTERFACE ${library_${name}})
endforeach()
target_link_libraries(lockstep_dependencies INTERFACE nlohmann_json::nlohmann_json Threads::Threads)
# fmt's headers come with libtorch: Debian's are older and would clash with them. base/format.cpp compiles the rest.
target_include_directories(lockstep_dependencies SYSTEM INTERFACE ${LIBTORCH}/include)

# The tests' main() leaves without libtorch's destructors, which take a tenth of a second.
add_library(lockstep_gtest STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/main.cpp)
target_link_libraries(lockstep_gtest PUBLIC GTest::gtest GTest::gmock)
