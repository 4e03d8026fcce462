# Embeds deploy/ray/driver.py in the program, so that the output of `lockstep submit --on ray` is
# self-contained.
set(driver ${CMAKE_SOURCE_DIR}/deploy/ray/driver.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${driver})
file(READ ${driver} driver_text)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/ray_driver.cpp @ONLY CONTENT
  "#include \"start/submit.h\"\n\nnamespace lockstep::start {\n
std::string_view ray_driver() {\n  return R\"python(${driver_text})python\";\n}\n\n}  // namespace lockstep::start\n")
target_sources(lockstep_start PRIVATE ${CMAKE_BINARY_DIR}/ray_driver.cpp)
