// The version of the library whose headers these are, for programs that compile with several:
//
//   #if ONNX_EXTERNAL_VERSION_MAJOR == 0 && ONNX_EXTERNAL_VERSION_MINOR < 2
//   #error "onnx-external 0.2 or newer is needed"
//   #endif
//
// CMake refuses to configure if it differs from that of the project.
#pragma once

#define ONNX_EXTERNAL_VERSION_MAJOR 0
#define ONNX_EXTERNAL_VERSION_MINOR 2
#define ONNX_EXTERNAL_VERSION_PATCH 0
#define ONNX_EXTERNAL_VERSION "0.2.0"
