// Status and Result: how the engine reports failure below the public functions.
#pragma once
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace mithril::core {

/// Success, or a typed error. One pointer wide; success allocates nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::make_unique<Error>(std::move(error))) {}  // NOLINT
  bool ok() const { return error_ == nullptr; }
  const Error& error() const { return *error_; }
  Error& error() { return *error_; }
  Error take() { return std::move(*error_); }
  /// Throws ErrorException on failure: for the public functions only.
  void or_throw() {
    if (!ok()) throw ErrorException(take());
  }

 private:
  std::unique_ptr<Error> error_;
};

/// A value, or a typed error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT
  Result(Status status) : status_(std::move(status)) {}  // NOLINT
  Result(Error error) : status_(std::move(error)) {}     // NOLINT
  bool ok() const { return value_.has_value(); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  const Error& error() const { return status_.error(); }
  Status status() && { return std::move(status_); }
  T or_throw() && {
    status_.or_throw();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

/// `fail(ErrorKind::kShape, Code::kShapeInner, "matmul: ... {}", shape)`.
template <class... Args>
Error fail(ErrorKind kind, Code code, fmt::format_string<Args...> format, Args&&... args) {
  Error error;
  error.kind = kind;
  error.code = code;
  error.message = fmt::format(format, std::forward<Args>(args)...);
  return error;
}

[[noreturn]] void internal_error(const char* file, int line, const std::string& message);

}  // namespace mithril::core

/// Returns the failure of a Status or of a Result's status to the caller.
#define MITHRIL_RETURN_IF_ERROR(expr)                \
  do {                                               \
    ::mithril::core::Status mithril_status = (expr); \
    if (!mithril_status.ok()) return mithril_status; \
  } while (0)

#define MITHRIL_CONCAT_(a, b) a##b
#define MITHRIL_CONCAT(a, b) MITHRIL_CONCAT_(a, b)
/// `MITHRIL_ASSIGN(auto graph, parse(text));` returns on failure.
#define MITHRIL_ASSIGN(declaration, expr)                                 \
  auto MITHRIL_CONCAT(mithril_result_, __LINE__) = (expr);                \
  if (!MITHRIL_CONCAT(mithril_result_, __LINE__).ok())                    \
    return std::move(MITHRIL_CONCAT(mithril_result_, __LINE__)).status(); \
  declaration = std::move(*MITHRIL_CONCAT(mithril_result_, __LINE__))

/// A condition that only a bug of ours can break. Throws ErrorException(kInternal): a bug is
/// reported, never an abort of the user's process. Not for code that generated code calls.
#define MITHRIL_CHECK(condition, ...)                                                \
  do {                                                                               \
    if (!(condition)) [[unlikely]]                                                   \
      ::mithril::core::internal_error(__FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (0)
