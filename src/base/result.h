#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace kvasir {

// What kind of failure of the world a Status reports. The server maps each to one HTTP status, the CLI to one
// exit code.
enum class ErrorCode {
  kOk,
  kInvalidArgument,    // the caller's input is wrong and will stay wrong
  kNotFound,           // a file, or what a client asks for by name, that is not there
  kUnsupported,        // well-formed, but a feature we do not have
  kResourceExhausted,  // a queue, pool or limit is full now
  kUnavailable,        // starting or draining
  kCorrupt,            // a file that lacks what it must hold or contradicts itself (damaged or hostile)
  kIo,                 // the operating system refused
  kInternal,           // our fault
};

// Outcome of an operation that can fail for reasons outside the program. Messages name the thing and the
// number.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == ErrorCode::kOk; }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The request field that is wrong ("n"), or "" where no single one is.
  const std::string& field() const { return field_; }
  Status about(std::string field) && {
    field_ = std::move(field);
    return std::move(*this);
  }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::string message_, field_;
};

inline Status invalid_argument(std::string m) {
  return {ErrorCode::kInvalidArgument, std::move(m)};
}
inline Status not_found(std::string m) {
  return {ErrorCode::kNotFound, std::move(m)};
}
inline Status unsupported(std::string m) {
  return {ErrorCode::kUnsupported, std::move(m)};
}
inline Status resource_exhausted(std::string m) {
  return {ErrorCode::kResourceExhausted, std::move(m)};
}
inline Status unavailable(std::string m) {
  return {ErrorCode::kUnavailable, std::move(m)};
}
inline Status corrupt(std::string m) {
  return {ErrorCode::kCorrupt, std::move(m)};
}
inline Status io_error(std::string m) {
  return {ErrorCode::kIo, std::move(m)};
}
inline Status internal_error(std::string m) {
  return {ErrorCode::kInternal, std::move(m)};
}

// A T or the Status that says why there is none. value() of an error is a program fault, never reachable by
// input.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<1>, std::move(value)) {}        // NOLINT: implicit by design
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {  // NOLINT: implicit by design
    CHECK(!std::get<0>(state_).ok());
  }

  bool ok() const { return state_.index() == 1; }
  explicit operator bool() const { return ok(); }
  Status status() const { return ok() ? Status() : std::get<0>(state_); }
  const std::string& message() const { return std::get<0>(state_).message(); }

  T& value() & {
    CHECK(ok());
    return std::get<1>(state_);
  }
  const T& value() const& {
    CHECK(ok());
    return std::get<1>(state_);
  }
  T&& value() && {
    CHECK(ok());
    return std::move(std::get<1>(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> state_;
};

}  // namespace kvasir

// Leaves the enclosing function with the failing Status.
#define KVASIR_RETURN_IF_ERROR(expr)                                      \
  do {                                                                    \
    if (::kvasir::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

#define KVASIR_CONCAT_INNER(a, b) a##b
#define KVASIR_CONCAT(a, b) KVASIR_CONCAT_INNER(a, b)
#define KVASIR_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return tmp.status();                \
  lhs = std::move(tmp).value()

// KVASIR_ASSIGN_OR_RETURN(auto file, GgufFile::open(path));
#define KVASIR_ASSIGN_OR_RETURN(lhs, expr) \
  KVASIR_ASSIGN_OR_RETURN_IMPL(KVASIR_CONCAT(result_, __LINE__), lhs, expr)
