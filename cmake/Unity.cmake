# Unity builds: the files of a folder are compiled as one, which takes less than half the time,
# because most of it goes into the headers of the standard library, JSON and protobuf.
option(ONNX_EXTERNAL_UNITY "Compile the files of a folder together (./demo, ./check, packages)" OFF)

# onnx_external_unity(TARGET): call it where all sources of the target are known.
function(onnx_external_unity target)
  if(NOT ONNX_EXTERNAL_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes all files but the first for headers, in which such classes would be a mistake.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(GET source PARENT_PATH folder)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "${folder}" group)
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES
      UNITY_GROUP ${group})
  endforeach()
endfunction()
