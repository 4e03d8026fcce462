# deploy/ray/driver.py as a text within the program: what `lockstep submit --on ray` prints is whole by itself.
set(driver ${CMAKE_SOURCE_DIR}/deploy/ray/driver.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${driver})
file(READ ${driver} driver_text)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/ray_driver.cpp @ONLY CONTENT
  "#include \"start/submit.h\"\n\nnamespace lockstep::start {\n
std::string_view ray_driver() {\n  return R\"python(${driver_text})python\";\n}\n\n}  // namespace lockstep::start\n")
target_sources(lockstep_start PRIVATE ${CMAKE_BINARY_DIR}/ray_driver.cpp)
