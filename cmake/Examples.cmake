# Embeds examples/files in the program, for `lockstep sample --examples`.
set(examples_folder ${CMAKE_SOURCE_DIR}/examples/files)
file(GLOB_RECURSE example_names CONFIGURE_DEPENDS RELATIVE ${examples_folder} ${examples_folder}/*)
set(example_entries "")
foreach(name IN LISTS example_names)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${examples_folder}/${name})
  file(READ ${examples_folder}/${name} example_text)
  string(APPEND example_entries "      {\"${name}\", R\"example(${example_text})example\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/example_files.cpp @ONLY CONTENT
  "#include \"start/examples.h\"\n\nnamespace lockstep::start {\n
std::span<const ExampleFile> example_files() {\n  static constexpr ExampleFile kFiles[] = {\n${example_entries}  };\n  return kFiles;\n}\n\n}  // namespace lockstep::start\n")
target_sources(lockstep_start PRIVATE ${CMAKE_BINARY_DIR}/example_files.cpp)
