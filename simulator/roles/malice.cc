#include "simulator/roles/malice.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

namespace fluvial::simulator {

Malice::Malice(Cast& cast, HostId host)
    : cast_(cast), host_(host), rng_(cast.world().chance().stream("malice", host.value())) {}

Malice::Trick Malice::draw() {
  if (!cast_.world().faults_on()) return Trick::kNone;
  if (cast_.is_malicious(host_)) {
    return static_cast<Trick>(rng_.below(static_cast<std::uint64_t>(Trick::kCount)));
  }
  return happens(rng_, cast_.scenario().faults.sites.corrupt) ? Trick::kDamage : Trick::kNone;
}

void Malice::apply(Trick trick, v1::UpdateBegin* begin) {
  switch (trick) {
    case Trick::kOtherBase: begin->set_base_sha256(std::string(32, 'x')); break;
    case Trick::kTooHeavy: begin->set_weight(cast_.weight_max(host_) + 1 + rng_.below(1'000'000)); break;
    case Trick::kNoWeight: begin->set_weight(0); break;
    case Trick::kOtherCodec: begin->set_codec("qsgd:levels=3"); break;
    case Trick::kOtherLengths: begin->set_value_count(begin->value_count() + 1 + rng_.below(1 << 20)); break;
    case Trick::kOtherName: begin->mutable_key()->set_site(begin->key().site() - 1); break;
    case Trick::kOldLease: begin->set_lease_epoch(begin->lease_epoch() - 1); break;
    case Trick::kSkipsAhead: begin->set_first_chunk(1); break;
    case Trick::kReplay: begin->mutable_key()->set_submission(begin->key().submission() - 1); break;
    default: break;
  }
}

bool Malice::sends(Trick trick, std::uint64_t index, std::uint64_t chunk_count) const {
  return trick != Trick::kTruncated || index + 1 < chunk_count;
}

Buffer Malice::apply(Trick trick, bool is_first, Buffer chunk) {
  if (chunk.size() < sizeof(float) || !is_first) return chunk;
  switch (trick) {
    case Trick::kDamage: {
      const auto at = static_cast<std::size_t>(rng_.below(chunk.size()));
      chunk.data()[at] ^= static_cast<std::byte>(1U << rng_.below(8));
      break;
    }
    case Trick::kNotFinite: {
      const float value = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(chunk.data() + chunk.size() - sizeof(value), &value, sizeof(value));
      break;
    }
    case Trick::kTooGreat: {  // of the dense and the sparse ones, the last value
      const auto value = static_cast<float>(2 * cast_.scenario().plan.value_abs_max);
      std::memcpy(chunk.data() + chunk.size() - sizeof(value), &value, sizeof(value));
      break;
    }
    case Trick::kShortChunk: chunk.shrink(chunk.size() - 1); break;
    case Trick::kTwoContents: chunk.data()[chunk.size() - 4] ^= std::byte{1}; break;  // a small change of a value
    default: break;
  }
  return chunk;
}

Buffer Malice::apply(Trick trick, Buffer trailer) {
  if (const std::uint64_t count = trailer.size() / sizeof(std::int64_t); trick == Trick::kWildInteger && count > 0) {
    constexpr std::int64_t kWild[] = {std::numeric_limits<std::int64_t>::max(),
                                      std::numeric_limits<std::int64_t>::min(), std::int64_t{1} << 40, 1000};
    const std::uint64_t at = rng_.below(count) * sizeof(std::int64_t);
    store_le<std::uint64_t>(trailer.data() + at, static_cast<std::uint64_t>(kWild[rng_.below(std::size(kWild))]));
  }
  if (trick == Trick::kOtherProbe) trailer.data()[trailer.size() - 1] ^= std::byte{1};  // 1 becomes 1/4
  return trailer;
}

Digest Malice::apply(Trick trick, const Digest& stored, const Digest& sent) const {
  switch (trick) {
    case Trick::kNone:
    case Trick::kDamage: return stored;
    case Trick::kOtherDigest: {
      Digest other = stored;
      other[0] ^= std::byte{1};
      return other;
    }
    default: return sent;  // it says what it sent
  }
}

}  // namespace fluvial::simulator
