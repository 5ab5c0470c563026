# What `cmake --install` puts in place, in three components, which are the packages that cpack makes:
#   commands  the commands, their man pages, completions for bash, documents
#   mpi       save-external-mpi, which needs Open MPI
#   dev       library, headers, CMake package, pkg-config file
include(CMakePackageConfigHelpers)

install(TARGETS onnx_external EXPORT onnx_externalTargets COMPONENT dev)
install(DIRECTORY include/onnx_external DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)

set(doc_dir ${CMAKE_INSTALL_DATAROOTDIR}/doc)
install(FILES README.md CHANGELOG.md DESTINATION ${doc_dir}/onnx-external COMPONENT commands)
install(DIRECTORY docs DESTINATION ${doc_dir}/onnx-external COMPONENT commands)
install(FILES LICENSE DESTINATION ${doc_dir}/onnx-external RENAME copyright COMPONENT commands)
install(FILES LICENSE DESTINATION ${doc_dir}/libonnx-external-dev RENAME copyright COMPONENT dev)

if(TARGET save-external-mpi)
  install(TARGETS save-external-mpi COMPONENT mpi)
endif()
foreach(command save-external verify-external inspect-external cut-external)
  install(TARGETS ${command} COMPONENT commands)
  install(FILES packaging/completions.bash RENAME ${command} COMPONENT commands
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions)
  if(CMAKE_CROSSCOMPILING)
    continue()  # the man pages are what the commands say
  endif()
  set(page ${CMAKE_CURRENT_BINARY_DIR}/${command}.1.gz)
  add_custom_command(OUTPUT ${page}
    COMMAND sh ${PROJECT_SOURCE_DIR}/packaging/man_page.sh $<TARGET_FILE:${command}>
            ${PROJECT_VERSION} ${page}
    DEPENDS ${command} packaging/man_page.sh packaging/man_page.awk
    VERBATIM)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT commands)
  list(APPEND pages ${page})
endforeach()
add_custom_target(man_pages ALL DEPENDS ${pages})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onnx_external)
install(EXPORT onnx_externalTargets NAMESPACE onnx_external:: DESTINATION ${package_dir}
        COMPONENT dev)
configure_package_config_file(cmake/onnx_externalConfig.cmake.in onnx_externalConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(onnx_externalConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/onnx_externalConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/onnx_externalConfigVersion.cmake
              cmake/Dependencies.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# Relative, so that the installed tree can be moved and `cmake --install --prefix` works.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
# Who links a static library links what it uses, too, and `pkg-config --libs` alone must say so.
get_target_property(library_type onnx_external TYPE)
set(pc_private "")
if(library_type STREQUAL SHARED_LIBRARY)
  set(pc_private _private)
endif()
set(pc_requires${pc_private} " zlib libdeflate libcrypto re2 fmt")
set(pc_threads " -pthread")
if(ONNX_EXTERNAL_OPENMP)
  list(JOIN OpenMP_CXX_FLAGS " " openmp_flags)
  string(APPEND pc_threads " ${openmp_flags}")
endif()
set(pc_libs${pc_private} ${pc_threads})
configure_file(cmake/onnx_external.pc.in onnx_external.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/onnx_external.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# Packages: `cpack --config BUILD/CPackConfig.cmake` makes onnx-external and libonnx-external-dev.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME onnx-external)
set(CPACK_PACKAGE_CONTACT "The onnx-external authors <authors@onnx-external.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL commands dev)
if(TARGET save-external-mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)

set(CPACK_DEBIAN_COMMANDS_PACKAGE_NAME onnx-external)
set(CPACK_DEBIAN_COMMANDS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMANDS_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_COMMANDS_DESCRIPTION "The commands save-external, verify-external, inspect-external and cut-external: at disk speed, in
constant memory, without Python, and every byte verified.")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME onnx-external-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_MPI_DESCRIPTION "save-external-mpi: the command save-external for processes that mpirun starts.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libonnx-external-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
# What the headers include, and what Dependencies.cmake looks for on behalf of who links.
string(JOIN ", " CPACK_DEBIAN_DEV_PACKAGE_DEPENDS libonnx-dev libprotobuf-dev protobuf-compiler
  zlib1g-dev libdeflate-dev libssl-dev libre2-dev libfmt-dev libexpected-dev pkgconf)
set(CPACK_COMPONENT_DEV_DESCRIPTION "The static library, its headers, a CMake package and a pkg-config file.")
if(PROJECT_IS_TOP_LEVEL)  # the packages of another project are its own
  include(CPack)
endif()
