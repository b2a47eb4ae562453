#include "simulator/roles/malice.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "core/identity/signature.h"
#include "core/wire/mapping.h"
#include "core/wire/statements.h"

namespace fluvial::simulator {

Malice::Malice(Cast& cast, HostId host)
    : cast_(cast), host_(host), rng_(cast.world().chance().stream("malice", host.value())) {}

Malice::Trick Malice::draw() {
  if (!cast_.world().faults_on()) return Trick::kNone;
  if (cast_.is_malicious(host_)) {
    const Trick end = cast_.has_passes() ? Trick::kCount : Trick::kOtherPass;
    return static_cast<Trick>(rng_.below(static_cast<std::uint64_t>(end)));
  }
  return happens(rng_, cast_.scenario().faults.sites.corrupt) ? Trick::kDamage : Trick::kNone;
}

bool Malice::says(SessionId session, v1::Envelope& message, SharedBytes& payload, const store::PendingInfo* info) {
  if (message.has_update_begin()) {
    const std::uint64_t first_chunk = message.update_begin().first_chunk();
    const Trick trick = draw();
    sending_.reset();
    // A trick whose digest covers what was sent needs to send all of it.
    const bool possible = trick == Trick::kDamage || (trick != Trick::kNone && first_chunk == 0);
    if (possible && info != nullptr) begin(*info, first_chunk, trick);
  }
  if (sending_ && message.has_update_end() && info != nullptr) sending_->info = *info;  // it has its digest by now
  return !sending_ || part(session, message, payload);
}

void Malice::begin(const store::PendingInfo& info, std::uint64_t first_chunk, Trick trick) {
  const SiteId site = cast_.identity(host_).node;
  if (is_wicked()) cast_.checks().rounds().excuse(site);
  cast_.checks().rounds().excuse(info.start.run, info.start.round, site);
  sending_.emplace(Sending{info, trick, first_chunk});
}

bool Malice::part(SessionId session, v1::Envelope& message, SharedBytes& payload) {
  const bool is_end = message.has_update_end();
  if (!message.has_update_begin() && !message.has_update_chunk() && !is_end) return true;
  if (sending_->trick == Trick::kContradiction) sending_->before.emplace_back(message, payload);
  if (message.has_update_begin()) {
    apply(sending_->trick, message.mutable_update_begin());
    sending_->said = message.update_begin();
  }
  if (message.has_update_chunk()) return chunk(message.update_chunk().index(), payload);
  return !is_end || end(session, message, payload);
}

bool Malice::chunk(std::uint64_t index, SharedBytes& payload) {
  if (!sends(sending_->trick, index, sending_->info.start.chunk_count)) return false;
  Buffer bytes = apply(sending_->trick, index == sending_->first_chunk, Buffer::copy_of(payload.bytes));
  sending_->sent.push_back(Buffer::copy_of(bytes.span()));
  payload = SharedBytes::from(std::move(bytes));
  return true;
}

bool Malice::end(SessionId session, v1::Envelope& message, SharedBytes& payload) {
  Sending sending = *std::exchange(sending_, std::nullopt);
  const store::PendingInfo& info = sending.info;
  Buffer bytes = apply(sending.trick, Buffer::copy_of(payload.bytes));
  SubmissionDigest of_sent(info.start.digest_kind, sending.sent.size());
  for (std::size_t i = 0; i < sending.sent.size(); ++i) {
    of_sent.side_by_side(i, sending.sent[i].span());
    of_sent.in_order(sending.sent[i].span());
  }
  const Digest digest = apply(sending.trick, info.digest, of_sent.finish(bytes.span()));
  if (digest != info.digest) {  // the part that can be decoded is an update like any other
    std::vector<std::int64_t> integers(bytes.size() / sizeof(std::int64_t));
    for (std::size_t i = 0; i < integers.size(); ++i) {
      integers[i] = static_cast<std::int64_t>(load_le<std::uint64_t>(bytes.data() + i * sizeof(std::int64_t)));
    }
    std::ignore = cast_.checks().truth().add(info.start.run, info.start.round, cast_.identity(host_).node, digest,
                                             info.start, sending.sent, std::move(integers));
  }
  payload = SharedBytes::from(std::move(bytes));
  message.mutable_update_end()->set_sha256(wire::digest_to_proto(digest));
  sign(sending.said, digest, message.mutable_update_end());
  if (sending.trick != Trick::kContradiction) return true;
  Network& network = cast_.world().network();
  network.send(host_, session, message, Payload::of(std::move(payload)));
  begin(info, 0, Trick::kTwoContents);
  for (auto& [again, bytes_again] : sending.before) {
    if (part(session, again, bytes_again)) network.send(host_, session, again, Payload::of(std::move(bytes_again)));
  }
  return false;
}

void Malice::sign(const v1::UpdateBegin& said, const Digest& digest, v1::UpdateEnd* end) const {
  if (end->signature().empty()) return;  // it is of a version that signs nothing
  const v1::UpdateKey& key = said.key();
  round::Contribution given{SiteId(key.site()), Epoch(), said.weight(), digest, 0, {}, Incarnation(key.incarnation()),
                            key.submission()};
  const Result<round::MadeFrom> from = wire::made_from_proto(said.pass(), said.mean_sha256());
  if (from.ok()) given.from = *from;  // else its parent ends the session
  const Result<Digest> base = wire::digest_from_proto(said.base_sha256());
  FLUVIAL_CHECK(base.ok(), "a digest of 32 bytes");
  const std::string body = wire::contribution_body(RunId(key.run()), RoundId(key.round()), *base, given);
  const Result<Signature> signature = identity::sign(cast_.key(host_), wire::kContributionKind, as_byte_span(body));
  FLUVIAL_CHECK(signature.ok(), "a key signs");
  end->set_signature(wire::signature_to_proto(*signature));
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
    case Trick::kOtherPass: begin->set_pass(begin->pass() == 0 ? 1 : 0); break;
    case Trick::kOtherMean: begin->set_mean_sha256(std::string(32, 'x')); break;
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
    default: return sent;  // its digest is of what it sent
  }
}

}  // namespace fluvial::simulator
