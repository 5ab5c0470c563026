# The C++ program that the README shows, extracted and compiled: what is printed there is true.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/README.md)
file(READ ${PROJECT_SOURCE_DIR}/README.md readme)
string(FIND "${readme}" "```cpp\n" start)
string(SUBSTRING "${readme}" ${start} -1 readme)
string(SUBSTRING "${readme}" 7 -1 readme)
string(FIND "${readme}" "```" end)
string(SUBSTRING "${readme}" 0 ${end} program)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/readme_example.cc CONTENT "${program}")

add_executable(readme_example ${CMAKE_CURRENT_BINARY_DIR}/readme_example.cc)
onnx_external_warnings(readme_example)
target_link_libraries(readme_example PRIVATE onnx_external::onnx_external)
add_test(NAME ReadmeExample.SavesTheFixture
  COMMAND readme_example ${PROJECT_SOURCE_DIR}/fixtures/tiny/graph.onnx
          ${PROJECT_SOURCE_DIR}/fixtures/tiny/checkpoint.pt ${CMAKE_CURRENT_BINARY_DIR}/readme_out)
set_tests_properties(ReadmeExample.SavesTheFixture PROPERTIES
  FIXTURES_REQUIRED readme_out)
add_test(NAME ReadmeExample.StartsClean
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${CMAKE_CURRENT_BINARY_DIR}/readme_out)
set_tests_properties(ReadmeExample.StartsClean PROPERTIES FIXTURES_SETUP readme_out)
onnx_external_fast_tests(ReadmeExample.SavesTheFixture ReadmeExample.StartsClean)
