# Installs the program, liblockstep.a (all library modules), the headers as <lockstep/...>, and the
# package files for find_package(lockstep).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(library_modules GLOBAL PROPERTY lockstep_modules)
set(library_objects "")
foreach(name IN LISTS library_modules)
  list(APPEND library_objects $<TARGET_OBJECTS:lockstep_${name}>)
endforeach()
add_library(lockstep_archive STATIC ${library_objects})
set_target_properties(lockstep_archive PROPERTIES
  OUTPUT_NAME lockstep LINKER_LANGUAGE CXX EXPORT_NAME lockstep)
target_compile_features(lockstep_archive INTERFACE cxx_std_20)
target_link_libraries(lockstep_archive INTERFACE $<INSTALL_INTERFACE:lockstep::dependencies>)

# Copies the public headers (cmake/public_headers.txt) and the headers that they include, with
# include paths as an installed user sees them.
file(GLOB_RECURSE all_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.h)
set(header_folder ${CMAKE_BINARY_DIR}/include)
set(header_tool ${CMAKE_SOURCE_DIR}/tools/public_headers.py)
set(header_list ${CMAKE_SOURCE_DIR}/cmake/public_headers.txt)
add_custom_command(OUTPUT ${header_folder}/.stamp DEPENDS ${header_tool} ${header_list} ${all_headers}
  COMMAND ${Python3_EXECUTABLE} ${header_tool} --copy-to ${header_folder}
  COMMAND ${CMAKE_COMMAND} -E touch ${header_folder}/.stamp)
add_custom_target(lockstep_headers ALL DEPENDS ${header_folder}/.stamp)

# `public_headers` compiles each public header by itself (`make checks`). Most of that time is spent
# in one of two libtorch headers, so each check starts with the one that it includes, precompiled.
file(STRINGS ${header_list} public_headers REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header_list})
add_custom_target(public_headers)
function(lockstep_compile_alone target precompiled)
  set(alone_sources "")
  foreach(header IN LISTS ARGN)
    string(REPLACE / _ name ${header})
    set(source ${CMAKE_BINARY_DIR}/alone/${name}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <lockstep/${header}>\n")
    list(APPEND alone_sources ${source})
  endforeach()
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${alone_sources})
  # Ninja notices a file that a custom command rewrites only if the file is listed as its output.
  set_source_files_properties(${alone_sources} PROPERTIES OBJECT_DEPENDS ${header_folder}/.stamp)
  target_include_directories(${target} PRIVATE ${header_folder})
  target_link_libraries(${target} PRIVATE lockstep_compiler lockstep_dependencies lockstep_libtorch)
  target_compile_options(${target} PRIVATE -O0)
  target_precompile_headers(${target} PRIVATE ${precompiled})
  add_dependencies(public_headers ${target})
endfunction()
foreach(precompiled IN ITEMS torch/csrc/distributed/c10d/ProcessGroup.hpp ATen/core/Tensor.h)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${header_tool} --including ${precompiled}
    OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  set(those ${public_headers})
  list(REMOVE_ITEM public_headers ${headers})
  list(REMOVE_ITEM those ${public_headers})
  get_filename_component(name ${precompiled} NAME_WE)
  lockstep_compile_alone(public_headers_${name} <${precompiled}> ${those})
endforeach()
lockstep_compile_alone(public_headers_rest "" ${public_headers})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/lockstepConfig.cmake.in
  ${CMAKE_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(TARGETS lockstep_archive EXPORT lockstepTargets)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${package_folder})
install(FILES ${CMAKE_BINARY_DIR}/lockstepConfig.cmake ${CMAKE_BINARY_DIR}/lockstepConfigVersion.cmake
  DESTINATION ${package_folder})
install(DIRECTORY ${header_folder}/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/deploy/kubernetes ${CMAKE_SOURCE_DIR}/deploy/slurm ${CMAKE_SOURCE_DIR}/deploy/ray
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/deploy FILES_MATCHING PATTERN "*.yaml" PATTERN "*.sbatch" PATTERN "driver.py")
if(TARGET lockstep)
  install(TARGETS lockstep lockstep-core)
endif()
