# Every library that this project stands on, as Debian packages them; also used by the installed
# package's config file, so that both look in the same way.
if(NOT CMAKE_FIND_PACKAGE_NAME)  # of the first two that most machines lack, one error says what to do
  find_package(Protobuf QUIET)
  find_package(ONNX CONFIG QUIET)
  if(NOT Protobuf_FOUND OR NOT ONNX_FOUND)
    message(FATAL_ERROR "C++ libraries are missing (protobuf or onnx). On Debian and Ubuntu, this "
      "installs them: sh cmake/install-deps.sh build\ndocs/install.md has other systems.")
  endif()
endif()
find_package(Threads REQUIRED)
if(ONNX_EXTERNAL_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(Protobuf REQUIRED)  # before ONNX: its targets refer to protobuf::libprotobuf
find_package(ONNX CONFIG REQUIRED)
if(NOT TARGET onnx_proto)  # its name before onnx 1.16
  add_library(onnx_proto INTERFACE IMPORTED)
  target_link_libraries(onnx_proto INTERFACE ONNX::onnx_proto)
endif()
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(fmt CONFIG REQUIRED)
if(NOT CMAKE_FIND_PACKAGE_NAME)  # only while the library itself is compiled
  find_package(nlohmann_json CONFIG REQUIRED)
  find_package(tsl-robin-map CONFIG REQUIRED)
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(LIBDEFLATE REQUIRED IMPORTED_TARGET libdeflate)
find_path(TL_EXPECTED_INCLUDE_DIR tl/expected.hpp REQUIRED)
