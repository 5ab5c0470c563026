# The examples in the comments of the public headers and in docs/cpp.md, extracted and compiled.
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/onnx_external/*.h)
add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/header_examples.cc
  COMMAND ${ONNX_EXTERNAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/header_examples.py
          ${CMAKE_CURRENT_BINARY_DIR}/header_examples.cc
          ${PROJECT_SOURCE_DIR}/docs/cpp.md ${public_headers}
  DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/header_examples.py ${PROJECT_SOURCE_DIR}/docs/cpp.md
          ${public_headers})
add_library(header_examples OBJECT ${CMAKE_CURRENT_BINARY_DIR}/header_examples.cc)
onnx_external_warnings(header_examples)
target_link_libraries(header_examples PRIVATE onnx_external::onnx_external)
