// Defines macros that return errors to the caller. They are the only macros in this library.
#pragma once

#include <utility>

#include "onnx_external/result.h"

// TRY(expression) evaluates a Status (or a Result whose value is not needed). If it failed, the
// calling function, which may return any Result, returns the error.
//
// TRY_ASSIGN(declaration, expression) does the same for a Result and initializes the declaration
// with its value.
//
//   TRY_ASSIGN(const auto file, SourceFile::open(path));
//   TRY(file->read(0, bytes));
//
// TRY_IN(where, expression) and TRY_ASSIGN_IN(where, declaration, expression) put `where` in front
// of the error's message, as fail_in() does. `where` is evaluated only if there is an error.
//
// NOLINTBEGIN(cppcoreguidelines-macro-usage,bugprone-macro-parentheses): no function can return
// from its caller, and a declaration cannot be parenthesized.
#define TRY(...) ONNX_EXTERNAL_TRY(ONNX_EXTERNAL_NAME(try_, __COUNTER__), __VA_ARGS__)
#define TRY_ASSIGN(declaration, ...) \
  ONNX_EXTERNAL_TRY_ASSIGN(ONNX_EXTERNAL_NAME(try_, __COUNTER__), declaration, __VA_ARGS__)
#define TRY_IN(where, ...) \
  ONNX_EXTERNAL_TRY_IN(ONNX_EXTERNAL_NAME(try_, __COUNTER__), where, __VA_ARGS__)
#define TRY_ASSIGN_IN(where, declaration, ...)                                           \
  ONNX_EXTERNAL_TRY_ASSIGN_IN(ONNX_EXTERNAL_NAME(try_, __COUNTER__), where, declaration, \
                              __VA_ARGS__)

// Each expansion gets a variable with a different number in its name, so that a lambda in the
// arguments may use the macros on the same line.
#define ONNX_EXTERNAL_NAME(prefix, number) ONNX_EXTERNAL_PASTE(prefix, number)
#define ONNX_EXTERNAL_PASTE(prefix, number) prefix##number
#define ONNX_EXTERNAL_TRY(result, ...)                       \
  if (auto result = (__VA_ARGS__); !result) {                \
    return ::onnx_external::fail(std::move(result).error()); \
  }                                                          \
  static_assert(true)
#define ONNX_EXTERNAL_TRY_IN(result, where, ...)                         \
  if (auto result = (__VA_ARGS__); !result) {                            \
    return ::onnx_external::fail_in((where), std::move(result).error()); \
  }                                                                      \
  static_assert(true)
#define ONNX_EXTERNAL_TRY_ASSIGN(result, declaration, ...)   \
  auto result = (__VA_ARGS__);                               \
  if (!result) {                                             \
    return ::onnx_external::fail(std::move(result).error()); \
  }                                                          \
  declaration = *std::move(result)
#define ONNX_EXTERNAL_TRY_ASSIGN_IN(result, where, declaration, ...)     \
  auto result = (__VA_ARGS__);                                           \
  if (!result) {                                                         \
    return ::onnx_external::fail_in((where), std::move(result).error()); \
  }                                                                      \
  declaration = *std::move(result)
// NOLINTEND(cppcoreguidelines-macro-usage,bugprone-macro-parentheses)
