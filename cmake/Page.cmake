# Embeds the files of the monitoring page in the program, so that nothing is installed or
# downloaded.
set(page_folder ${CMAKE_SOURCE_DIR}/src/watch/page/web)
set(page_cases "")
foreach(name index.html app.css app.js ranks.js)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_folder}/${name})
  file(READ ${page_folder}/${name} page_text)
  string(APPEND page_cases "  if (name == \"${name}\") {\n    return R\"page(${page_text})page\";\n  }\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/page_files.cpp @ONLY CONTENT
  "#include \"watch/page/page.h\"\n\nnamespace lockstep::watch {\n
std::string_view page_file(std::string_view name) {\n${page_cases}  return {};\n}\n\n}  // namespace lockstep::watch\n")
target_sources(lockstep_watch PRIVATE ${CMAKE_BINARY_DIR}/page_files.cpp)
