// What a plan's `down` may be, for help texts and errors.
#pragma once

#include <string_view>

namespace fluvial::aggregate {

inline constexpr std::string_view kDownForms =
    "fp32, fp16, bf16, or delta: with one of fp16, bf16, int8, int4, sign, topk, randk, as in delta:int8";

}  // namespace fluvial::aggregate
