#include "core/digest/sha256_lanes.h"

#include <algorithm>
#include <array>

#include "core/digest/sha256.h"
#include "core/digest/sha256_x86.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fluvial {
namespace {

// Fewer pieces than these are done sooner two by two than as sixteen of which some are for nothing.
constexpr std::size_t kSixteenLeast = 10;

bool runs_two() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool sha = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_SHA) != 0;
  return sha && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1");
#else
  return false;
#endif
}

bool runs_sixteen() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

bool runs(Sha256Lanes lanes) {
  static const bool two = runs_two();
  static const bool sixteen = runs_sixteen();
  return lanes == Sha256Lanes::kOne || (lanes == Sha256Lanes::kTwo ? two : sixteen);
}

class Pieces {
 public:
  Pieces(ByteSpan bytes, std::size_t piece_bytes, std::span<Digest> out)
      : bytes_(bytes), piece_bytes_(piece_bytes), out_(out) {}

  bool done() const { return next_ == out_.size(); }
  std::size_t left() const { return out_.size() - next_; }

  void by_one(Sha256& hash) {
    hash.update(bytes_.subspan(next_ * piece_bytes_, piece_bytes_));
    out_[next_++] = hash.finish();
  }
#if defined(__x86_64__)
  void by_two() { by_lanes(x86::sha256_of_two); }
  void by_sixteen() { by_lanes(x86::sha256_of_sixteen); }
#endif

 private:
  // Lanes beyond the last piece hash that one once more.
  template <std::size_t kLanes>
  void by_lanes(void (*hash)(const std::array<const std::byte*, kLanes>&, std::size_t, std::array<Digest, kLanes>&)) {
    std::array<const std::byte*, kLanes> lanes;
    std::array<Digest, kLanes> digests;
    const std::size_t count = std::min(kLanes, left());
    for (std::size_t i = 0; i < kLanes; ++i) {
      lanes[i] = bytes_.data() + (next_ + std::min(i, count - 1)) * piece_bytes_;
    }
    hash(lanes, piece_bytes_, digests);
    std::copy_n(digests.begin(), count, out_.begin() + static_cast<std::ptrdiff_t>(next_));
    next_ += count;
  }

  ByteSpan bytes_;
  std::size_t piece_bytes_;
  std::span<Digest> out_;
  std::size_t next_ = 0;
};

}  // namespace

std::string_view lanes_name(Sha256Lanes lanes) {
  switch (lanes) {
    case Sha256Lanes::kOne: return "one";
    case Sha256Lanes::kTwo: return "two";
    case Sha256Lanes::kSixteen: return "sixteen";
  }
  return "unknown";
}

std::vector<Sha256Lanes> supported_lanes() {
  std::vector<Sha256Lanes> supported;
  for (const Sha256Lanes lanes : {Sha256Lanes::kOne, Sha256Lanes::kTwo, Sha256Lanes::kSixteen}) {
    if (runs(lanes)) supported.push_back(lanes);
  }
  return supported;
}

void sha256_pieces(ByteSpan bytes, std::size_t piece_bytes, std::span<Digest> out) {
  static const Sha256Lanes best = supported_lanes().back();
  sha256_pieces(best, bytes, piece_bytes, out);
}

void sha256_pieces(Sha256Lanes lanes, ByteSpan bytes, std::size_t piece_bytes, std::span<Digest> out) {
  FLUVIAL_CHECK(
      piece_bytes > 0 && piece_bytes % x86::kSha256BlockBytes == 0 && bytes.size() / piece_bytes == out.size(),
      "pieces of whole blocks, and a digest for each");
  FLUVIAL_CHECK(runs(lanes), "this machine does not run these lanes");
  Pieces pieces(bytes, piece_bytes, out);
#if defined(__x86_64__)
  if (lanes == Sha256Lanes::kSixteen) {
    const std::size_t least = runs(Sha256Lanes::kTwo) ? kSixteenLeast : 2;
    while (pieces.left() >= least) pieces.by_sixteen();
  }
  if (lanes != Sha256Lanes::kOne && runs(Sha256Lanes::kTwo)) {
    while (!pieces.done()) pieces.by_two();
  }
#endif
  if (pieces.done()) return;
  Sha256 hash;
  while (!pieces.done()) pieces.by_one(hash);
}

}  // namespace fluvial
