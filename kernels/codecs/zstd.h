// The zstd stage: any codec's encoded chunks, compressed (RFC 8878). Layout: an 8-byte header and one zstd frame, or
// the inner chunk as it is when compressing does not make it shorter. Internal; make_codec puts it around a codec whose
// spec has a zstd_level.
//
// The one part of the codecs that allocates: each encode takes memory for the inner chunk and libzstd's state (about
// 3 MB at level 3, 90 MB at 19), each read of a compressed chunk memory for the inner chunk and 160 KB. Both are
// bounded by the codec and the number of values, never by a number from the bytes. The same library version gives the
// same bytes; another version may compress differently, but reads them.
#pragma once

#include <memory>

#include "kernels/codec.h"

namespace fluvial::kernels {

inline constexpr int kZstdLevelMax = 19;

// `inner` is what `spec` describes without its zstd_level. kFailedPrecondition when this build has no libzstd.
Result<std::unique_ptr<Codec>> make_zstd_codec(std::unique_ptr<Codec> inner, const CodecSpec& spec);

}  // namespace fluvial::kernels
