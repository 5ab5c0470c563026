// How an error is passed on: the one place where this library uses macros.
#pragma once

#include <utility>

#include "onnx_external/result.h"

// TRY(expression): evaluates what gives a Status (or a Result whose value is not needed), and
// returns its error from the calling function, whatever Result that one returns.
//
// TRY_ASSIGN(declaration, expression): the same for a Result; its value initializes the
// declaration.
//
//   TRY_ASSIGN(const auto file, SourceFile::open(path));
//   TRY(file->read(0, bytes));
//
// NOLINTBEGIN(cppcoreguidelines-macro-usage,bugprone-macro-parentheses): neither a function nor
// parentheses around a declaration can do it.
#define TRY(...) ONNX_EXTERNAL_TRY(ONNX_EXTERNAL_NAME(try_, __COUNTER__), __VA_ARGS__)
#define TRY_ASSIGN(declaration, ...) \
  ONNX_EXTERNAL_TRY_ASSIGN(ONNX_EXTERNAL_NAME(try_, __COUNTER__), declaration, __VA_ARGS__)

// Counted names: a lambda among the arguments may use the macros, too, on the same line.
#define ONNX_EXTERNAL_NAME(prefix, number) ONNX_EXTERNAL_PASTE(prefix, number)
#define ONNX_EXTERNAL_PASTE(prefix, number) prefix##number
#define ONNX_EXTERNAL_TRY(result, ...)                       \
  if (auto result = (__VA_ARGS__); !result) {                \
    return ::onnx_external::fail(std::move(result).error()); \
  }                                                          \
  static_assert(true)
#define ONNX_EXTERNAL_TRY_ASSIGN(result, declaration, ...)   \
  auto result = (__VA_ARGS__);                               \
  if (!result) {                                             \
    return ::onnx_external::fail(std::move(result).error()); \
  }                                                          \
  declaration = *std::move(result)
// NOLINTEND(cppcoreguidelines-macro-usage,bugprone-macro-parentheses)
