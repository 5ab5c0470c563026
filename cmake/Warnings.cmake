# Strict warnings on our own targets only; errors in CI (ONNX_EXTERNAL_WERROR=ON).
option(ONNX_EXTERNAL_WERROR "Treat warnings as errors" OFF)

function(onnx_external_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
  if(ONNX_EXTERNAL_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
