#include "core/base/result.h"

namespace fluvial {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kNotFound: return "not_found";
    case Code::kAlreadyExists: return "already_exists";
    case Code::kPermissionDenied: return "permission_denied";
    case Code::kUnauthenticated: return "unauthenticated";
    case Code::kResourceExhausted: return "resource_exhausted";
    case Code::kFailedPrecondition: return "failed_precondition";
    case Code::kStale: return "stale";
    case Code::kDataLoss: return "data_loss";
    case Code::kDeadlineExceeded: return "deadline_exceeded";
    case Code::kUnavailable: return "unavailable";
    case Code::kCancelled: return "cancelled";
    case Code::kInternal: return "internal";
    case Code::kConflict: return "conflict";
  }
  return "unknown";
}

}  // namespace fluvial
