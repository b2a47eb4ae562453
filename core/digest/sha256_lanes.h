// SHA-256 of many pieces of equal length, several at a time: a processor's units wait for one hash's chain of rounds,
// and not for those of two or sixteen that know nothing of each other.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial {

// All give the same digests; the fastest that the machine runs is taken at run time.
enum class Sha256Lanes {
  kOne,      // OpenSSL, one piece after the other
  kTwo,      // the SHA extensions, two at a time
  kSixteen,  // AVX-512, sixteen at a time; few pieces as kTwo, where the machine runs it
};
std::string_view lanes_name(Sha256Lanes lanes);
std::vector<Sha256Lanes> supported_lanes();  // from kOne up, of this machine

// One digest for each piece of `piece_bytes`, which is a multiple of 64 above 0; `bytes` are exactly out.size() pieces.
void sha256_pieces(ByteSpan bytes, std::size_t piece_bytes, std::span<Digest> out);
void sha256_pieces(Sha256Lanes lanes, ByteSpan bytes, std::size_t piece_bytes, std::span<Digest> out);

}  // namespace fluvial
