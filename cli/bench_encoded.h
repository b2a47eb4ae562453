// What a site sends of one vector, made again for an audit (bench_audit.h): its digest, and what it decodes to. The
// encoder is the federation's; chunks are decoded by kernels/reference.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench_update.h"
#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/codec.h"

namespace fluvial::cli {

struct Encoded {
  bool is(std::string_view journalled) const;  // what has this digest; empty: nobody knows

  std::string stream;  // its digest, of either kind: which one it has, its site has chosen by its parent
  std::string tree;
  std::vector<double> decoded;
};

// What stands behind the chunks: the integers that the site says (bench_integer()), and the probe.
std::vector<std::byte> bench_trailer(const UpdateStream& stream, std::size_t integer_count);

// All of the plan's values. kDataLoss names the chunk that does not decode.
Result<Encoded> encode_all(const kernels::Codec& codec, const kernels::EncodePlan& plan,
                           std::span<const std::byte> trailer);

}  // namespace fluvial::cli
