# What one does before a commit: `cmake --build BUILD --target format`, and `--target tidy`.
# Both need the tools of clang 14 (clang-format-14, clang-tidy-14).
add_custom_target(format COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/format.sh VERBATIM USES_TERMINAL)
add_custom_target(tidy COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/tidy.sh ${PROJECT_BINARY_DIR}
                  VERBATIM USES_TERMINAL)
