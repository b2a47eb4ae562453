#include "simulator/roles/forgery.h"

#include <utility>
#include <vector>

#include "core/wire/mapping.h"
#include "kernels/fixed.h"

namespace fluvial::simulator {

Forgery::Forgery(Cast& cast, HostId host)
    : cast_(cast), host_(host), rng_(cast.world().chance().stream("forgery", host.value())) {}

void Forgery::draw() {
  const bool lies = cast_.world().faults_on() && cast_.is_malicious(host_);
  const Trick end = cast_.has_passes() ? Trick::kCount : Trick::kOtherPass;
  trick_ = lies ? static_cast<Trick>(rng_.below(static_cast<std::uint64_t>(end))) : Trick::kNone;
}

// A site of another region, or of none: it may be a participant, but is not below this aggregator.
std::uint32_t Forgery::stranger() {
  std::vector<std::uint32_t> others = {9999};
  for (const Host& host : cast_.world().hosts()) {
    const bool other = host.role == Role::kSite && !host.region.starts_with(cast_.world().host(host_).region);
    if (other) others.push_back(cast_.identity(host.id).node.value());
  }
  return others[rng_.below(others.size())];
}

void Forgery::apply(v1::PartialBegin* begin) {
  v1::Contributor* first = begin->contributors_size() > 0 ? begin->mutable_contributors(0) : nullptr;
  switch (trick_) {
    case Trick::kStranger:
      if (first == nullptr) break;
      *begin->add_contributors() = *first;
      begin->mutable_contributors(begin->contributors_size() - 1)->set_site(stranger());
      break;
    case Trick::kRefusal: {
      v1::Refusal& refusal = *begin->add_refusals();
      refusal.set_site(stranger());
      refusal.set_code(wire::code_to_proto(Code::kDataLoss));
      refusal.set_message("nothing was wrong with it");
      break;
    }
    case Trick::kTwice:
      if (first != nullptr) *begin->add_contributors() = v1::Contributor(*first);
      break;
    case Trick::kOtherProbe:
      if (first != nullptr) first->set_probe(first->probe() + 1);
      break;
    case Trick::kOldLease:
      if (first != nullptr) first->set_lease_epoch(first->lease_epoch() - 1);
      break;
    case Trick::kOldAttempt: begin->set_attempt(begin->attempt() - 1); break;
    case Trick::kOldEpoch: begin->set_epoch(begin->epoch() - 1); break;
    case Trick::kOtherShare:  // and a probe that goes with it
      if (first == nullptr || first->base_version() != first->admitted_version() || begin->scale_bits() < 9) break;
      first->set_share(1 + static_cast<std::uint32_t>(rng_.below(511)));
      first->set_probe(static_cast<std::int64_t>(first->weight() * first->share() << (begin->scale_bits() - 9)));
      break;
    case Trick::kOtherPass: begin->set_pass(begin->pass() == 0 ? 1 : 0); break;
    case Trick::kOtherScale: begin->set_scale_bits(begin->scale_bits() + 1); break;
    case Trick::kSkipsAhead: begin->set_first_chunk(begin->first_chunk() + 1); break;
    default: break;
  }
}

Buffer Forgery::apply(Buffer chunk, std::size_t value_count) {
  if (trick_ == Trick::kDamage && !chunk.empty()) {
    chunk.data()[rng_.below(chunk.size())] ^= static_cast<std::byte>(1U << rng_.below(8));
  } else if (trick_ == Trick::kTooGreat) {
    const std::vector<std::int64_t> sums(value_count, std::int64_t{1} << 62);
    Buffer packed(kernels::packed_bytes_max(value_count));
    packed.shrink(kernels::pack_chunk(sums, packed.span()));
    return packed;
  }
  return chunk;
}

void Forgery::apply(Digest* digest) const {
  if (trick_ == Trick::kOtherDigest) (*digest)[0] ^= std::byte{1};
}

}  // namespace fluvial::simulator
