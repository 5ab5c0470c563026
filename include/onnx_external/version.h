// Defines the version of the library as macros, for programs that must compile with several
// versions:
//
//   #if ONNX_EXTERNAL_VERSION_MAJOR == 0 && ONNX_EXTERNAL_VERSION_MINOR < 2
//   #error "onnx-external 0.2 or newer is needed"
//   #endif
//
// CMake's configuration fails if this version differs from the version of the CMake project.
#pragma once

#define ONNX_EXTERNAL_VERSION_MAJOR 0
#define ONNX_EXTERNAL_VERSION_MINOR 2
#define ONNX_EXTERNAL_VERSION_PATCH 0
#define ONNX_EXTERNAL_VERSION "0.2.0"
