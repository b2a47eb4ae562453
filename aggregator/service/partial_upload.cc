#include "aggregator/service/partial_upload.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/digest/submission_digest.h"
#include "core/transfer/outgoing.h"
#include "core/tree/ask.h"
#include "core/wire/mapping.h"

namespace fluvial::aggregator {
namespace {

net::Awaitable<Status> send(std::shared_ptr<net::Session> session, v1::Envelope message, SharedBytes payload) {
  net::OutFrame frame{std::move(message), std::move(payload)};
  co_return co_await tree::run_on(session->executor(), session->send(std::move(frame)));
}

}  // namespace

void PartialUpload::round_said(std::shared_ptr<const wire::Opening> opening) {
  opening_ = std::move(opening);
  received_ = opening_->received;
}

void PartialUpload::send(const SendPartial& partial) {
  const std::uint64_t generation = ++generation_;
  side_.lane().push([this, partial, generation] { return run(partial, generation); });
}

void PartialUpload::parent_down() {
  stop();
  received_.reset();  // what that parent had of it, the next opening says
  pace_.lost();
}

void PartialUpload::answered(std::uint64_t sequence, bool taken) {
  if (const auto took = pace_.answered(sequence, taken, now())) observer_.partial_took(*took);
}

void PartialUpload::round_closed() {
  if (const auto took = pace_.closed(now())) observer_.partial_took(*took);
}

net::Awaitable<void> PartialUpload::run(SendPartial partial, std::uint64_t generation) {
  const std::shared_ptr<net::Session> session = uplink_->session();
  if (session == nullptr || generation != generation_) co_return;
  const RunId run = opening_->run;
  const RoundId round = opening_->round;
  if (!partial.contributors.empty()) {
    pace_.begun(partial.sequence, now());
    set_sending(run, round, true);
  }
  const Status sent = co_await stream(partial, generation, session);
  if (sending_) set_sending(run, round, false);
  observer_.partial_sent(run, round, partial, sent);
}

void PartialUpload::set_sending(RunId run, RoundId round, bool sending) {
  sending_ = sending;
  if (sending) {
    side_.spans().begun(run, round, round::SpanKind::kSend, now());
  } else {
    side_.spans().ended(run, round, round::SpanKind::kSend, now());
  }
  changed_();
}

net::Awaitable<Status> PartialUpload::stream(SendPartial partial, std::uint64_t generation,
                                             std::shared_ptr<net::Session> session) {
  const std::size_t chunk_count = partial.contributors.empty() ? 0 : side_.sum().shape().layout.chunk_count();
  const std::uint64_t first_chunk = transfer::first_chunk(std::exchange(received_, std::nullopt),
                                                          uplink_->incarnation(), partial.sequence, chunk_count);
  const round::Arrival what{std::move(partial.contributors), std::move(partial.refusals), std::move(partial.missing)};
  const DigestKind digest_kind = uplink_->digest_kind();
  v1::Envelope begin = transfer::partial_begin(*opening_, uplink_->incarnation(), partial.sequence, what, chunk_count,
                                               first_chunk, digest_kind);
  Status sent = co_await aggregator::send(session, std::move(begin), {});
  SubmissionDigest digest(digest_kind, chunk_count);
  std::uint64_t bytes_sent = 0;
  for (std::size_t i = 0; sent.ok() && i < chunk_count; ++i) {
    if (generation != generation_) co_return Error{Code::kStale, "overtaken"};
    Result<SharedBytes> packed = co_await runtime_.pool.run(
        [this, i, &digest]() -> Result<SharedBytes> {
          SharedBytes bytes = SharedBytes::from(side_.sum().node().pack_chunk(i));
          digest.side_by_side(i, bytes.bytes);
          digest.in_order(bytes.bytes);
          return bytes;
        },
        net::Work::kPack);
    if (!packed.ok()) co_return packed.error();
    if (i < first_chunk) continue;  // the parent has it; the digest covers it
    v1::Envelope chunk;
    chunk.mutable_partial_chunk()->set_index(i);
    bytes_sent += packed->bytes.size();
    sent = co_await aggregator::send(session, std::move(chunk), std::move(*packed));
  }
  if (!sent.ok()) co_return sent;
  if (generation != generation_) co_return Error{Code::kStale, "overtaken"};
  if (chunk_count > 0) {
    uplink_->bytes().update("partial", bytes_sent, transfer::plain_values(opening_->value_count, opening_->pass));
  }
  SharedBytes integers;
  if (chunk_count > 0) integers = SharedBytes::from(Buffer::copy_of(std::as_bytes(side_.sum().node().integers())));
  v1::Envelope end;
  end.mutable_partial_end()->set_sha256(wire::digest_to_proto(digest.finish(integers.bytes)));
  co_return co_await aggregator::send(session, std::move(end), std::move(integers));
}

}  // namespace fluvial::aggregator
