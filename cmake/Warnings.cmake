# Strict warnings on our own targets only, and not in the build of another project, whose author they
# do not concern; errors in CI (ONNX_EXTERNAL_WERROR=ON).
option(ONNX_EXTERNAL_WERROR "Treat warnings as errors" OFF)

function(onnx_external_warnings target)
  if(NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
  if(ONNX_EXTERNAL_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
