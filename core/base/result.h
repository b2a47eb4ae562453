// Result<T>: a value or an Error with a code from one closed list. Errors from peers, files and people travel as
// values; a broken invariant of our own stops the process (check.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/base/check.h"

namespace fluvial {

// The closed list. Mapped to the wire in core/wire alone; append only.
enum class Code {
  kInvalidArgument = 1,     // what was given can never be right
  kNotFound = 2,            //
  kAlreadyExists = 3,       //
  kPermissionDenied = 4,    // known, but may not
  kUnauthenticated = 5,     // not known
  kResourceExhausted = 6,   // a bound was reached: a queue, a budget, a rate
  kFailedPrecondition = 7,  // right in another state
  kStale = 8,               // fenced: an older epoch, attempt, incarnation or session
  kDataLoss = 9,            // bytes that do not match their digest or format
  kDeadlineExceeded = 10,   //
  kUnavailable = 11,        // try again: the peer or the disk is away
  kCancelled = 12,          // we are stopping
  kInternal = 13,           //
  kConflict = 14,           // one submission with two contents: its sender is not to be believed
};

std::string_view code_name(Code code);  // "invalid_argument", ... : for logs and metric labels

struct Error {
  Code code = Code::kInternal;
  std::string message;  // what was wrong, where, what was expected; one line

  std::string to_string() const { return std::string(code_name(code)) + ": " + message; }
  bool operator==(const Error&) const = default;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return require(), std::get<0>(state_); }
  const T& value() const& { return require(), std::get<0>(state_); }
  T&& value() && { return require(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    FLUVIAL_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }

 private:
  void require() const { FLUVIAL_CHECK(ok(), "value() of a Result that holds: " + std::get<1>(state_).to_string()); }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    FLUVIAL_CHECK(!ok(), "error() of a Status that is ok");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace fluvial

#define FLUVIAL_CONCAT_(a, b) a##b
#define FLUVIAL_CONCAT(a, b) FLUVIAL_CONCAT_(a, b)

// Returns the error of a Status or Result expression to the caller. Not for coroutines (use the CO_ forms).
#define FLUVIAL_TRY(expr)                                                                          \
  do { /* NOLINTNEXTLINE(performance-unnecessary-copy-initialization): `expr` may be a variable */ \
    if (auto fluvial_status = (expr); !fluvial_status.ok()) [[unlikely]]                           \
      return fluvial_status.error();                                                               \
  } while (false)
#define FLUVIAL_ASSIGN(declaration, expr)                           \
  auto FLUVIAL_CONCAT(fluvial_result_, __LINE__) = (expr);          \
  if (!FLUVIAL_CONCAT(fluvial_result_, __LINE__).ok()) [[unlikely]] \
    return FLUVIAL_CONCAT(fluvial_result_, __LINE__).error();       \
  declaration = std::move(FLUVIAL_CONCAT(fluvial_result_, __LINE__)).value()
#define FLUVIAL_CO_TRY(expr)                                                       \
  do { /* NOLINTNEXTLINE(performance-unnecessary-copy-initialization): as above */ \
    if (auto fluvial_status = (expr); !fluvial_status.ok()) [[unlikely]]           \
      co_return fluvial_status.error();                                            \
  } while (false)
#define FLUVIAL_CO_ASSIGN(declaration, expr)                        \
  auto FLUVIAL_CONCAT(fluvial_result_, __LINE__) = (expr);          \
  if (!FLUVIAL_CONCAT(fluvial_result_, __LINE__).ok()) [[unlikely]] \
    co_return FLUVIAL_CONCAT(fluvial_result_, __LINE__).error();    \
  declaration = std::move(FLUVIAL_CONCAT(fluvial_result_, __LINE__)).value()
