// How the global model travels down: a plan's `down`. Pure.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "kernels/codec.h"

namespace fluvial::aggregate {

struct Down {
  enum class Kind {
    kWhole,    // the model itself, fp32
    kRounded,  // the model itself, each value rounded by the codec: fp16, bf16
    kDelta,    // the difference from the version before, encoded
  };
  Kind kind = Kind::kWhole;
  std::string codec;  // canonical; empty: whole
  bool operator==(const Down&) const = default;
};

// "fp32", "fp16", "bf16" or "delta:CODEC". kInvalidArgument says what was expected. A difference is encoded by codecs
// that leave out less than they were given, whatever it is: what is left out then comes with a later difference. An
// unbiased codec (qsgd, terngrad, randk with unbiased=true) may be off by more than the difference itself, and a vote
// has no magnitude.
Result<Down> parse_down(std::string_view text);
std::string to_string(const Down& down);  // parse_down() gives the same back

// The codec of a model in `form`: with a base, that of a difference. kInvalidArgument: not one that parse_down() takes.
Result<std::unique_ptr<kernels::Codec>> make_down_codec(std::string_view codec, bool is_delta);

}  // namespace fluvial::aggregate
