# What `cmake --install` puts in place: library, headers, commands, CMake package, pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS onnx_external EXPORT onnx_externalTargets)
install(DIRECTORY include/onnx_external DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS save-external verify-external inspect-external)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onnx_external)
install(EXPORT onnx_externalTargets NAMESPACE onnx_external:: DESTINATION ${package_dir})
configure_package_config_file(cmake/onnx_externalConfig.cmake.in onnx_externalConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(onnx_externalConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/onnx_externalConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/onnx_externalConfigVersion.cmake
              cmake/Dependencies.cmake
        DESTINATION ${package_dir})

# Relative, so that the installed tree can be moved and `cmake --install --prefix` works.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
# Who links a static library links what it uses, too, and `pkg-config --libs` alone must say so.
get_target_property(library_type onnx_external TYPE)
set(pc_private "")
if(library_type STREQUAL SHARED_LIBRARY)
  set(pc_private _private)
endif()
set(pc_requires${pc_private} " zlib libdeflate libcrypto re2 fmt")
set(pc_libs${pc_private} " -pthread")
configure_file(cmake/onnx_external.pc.in onnx_external.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/onnx_external.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
