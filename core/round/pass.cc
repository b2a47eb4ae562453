#include "core/round/pass.h"

#include <string>

#include "core/round/schema.h"

namespace fluvial::round {
namespace {

// A vector is no longer than a model: it holds factors of one.
Status check_vector(const std::optional<VectorRef>& vector, const char* what) {
  if (!vector || (vector->bytes > 0 && vector->bytes <= kModelBytesMax && vector->bytes % sizeof(float) == 0)) {
    return {};
  }
  return Error{Code::kInvalidArgument, std::string(what) + " of " + std::to_string(vector->bytes) + " bytes"};
}

}  // namespace

std::string pass_name(std::uint64_t index) { return "pass " + std::to_string(index + 1); }

Status check_pass(const Pass& pass) {
  if (pass.count < 1 || pass.count > kPassesMost || pass.index >= pass.count) {
    return Error{Code::kInvalidArgument, pass_name(pass.index) + " of " + std::to_string(pass.count) +
                                             ", expected one of 1 to " + std::to_string(kPassesMost)};
  }
  if (pass.value_count == 0 || pass.value_count > kModelBytesMax / sizeof(float)) {
    return Error{Code::kInvalidArgument, "a pass of " + std::to_string(pass.value_count) + " values"};
  }
  if (pass.mean.has_value() != (pass.index > 0)) {
    return Error{Code::kInvalidArgument,
                 pass_name(pass.index) + (pass.mean ? " with a mean before it" : " without the mean before it")};
  }
  FLUVIAL_TRY(check_vector(pass.mean, "a mean"));
  return check_vector(pass.state, "a codec's state");
}

}  // namespace fluvial::round
