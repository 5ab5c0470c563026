# The macros of version.h, which programs read without CMake, are the version of the project.
function(check_version_header header)
  file(STRINGS ${header} lines REGEX "^#define ONNX_EXTERNAL_VERSION")
  set(expected
    "#define ONNX_EXTERNAL_VERSION_MAJOR ${PROJECT_VERSION_MAJOR}"
    "#define ONNX_EXTERNAL_VERSION_MINOR ${PROJECT_VERSION_MINOR}"
    "#define ONNX_EXTERNAL_VERSION_PATCH ${PROJECT_VERSION_PATCH}"
    "#define ONNX_EXTERNAL_VERSION \"${PROJECT_VERSION}\"")
  if(NOT lines STREQUAL expected)
    message(FATAL_ERROR "${header} has another version than project(), which is ${PROJECT_VERSION}")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endfunction()
check_version_header(${CMAKE_CURRENT_SOURCE_DIR}/include/onnx_external/version.h)
