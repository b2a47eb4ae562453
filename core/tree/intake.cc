#include "core/tree/intake.h"

#include <boost/asio/awaitable.hpp>
#include <set>
#include <utility>

#include "core/tree/ask.h"
#include "core/wire/mapping.h"

namespace fluvial::tree {

namespace {

// The new beginning goes on from what was kept, or starts over.
template <typename Head>
Result<transfer::Incoming> start(Head head, transfer::Terms terms, std::optional<transfer::Incoming> kept,
                                 const transfer::Staging& staging) {
  if (!kept) return transfer::Incoming::begin(std::move(head), std::move(terms), staging);
  FLUVIAL_TRY(kept->resume(std::move(head), terms));
  return std::move(*kept);
}

}  // namespace

Intake::Intake(Runtime& runtime, HubOwner& owner, transfer::RoundBook& book, transfer::Staging staging, Child child)
    : runtime_(runtime), owner_(owner), book_(book), staging_(std::move(staging)), child_(std::move(child)) {}

net::Awaitable<Status> Intake::begin(v1::UpdateBegin begin) {
  Result<transfer::UpdateHead> head = transfer::head_from_proto(begin, child_.node, child_.role);
  if (!head.ok()) co_return head.error();
  current_.emplace().update = *head;
  co_return co_await begin_with(std::move(*head));
}

net::Awaitable<Status> Intake::begin(v1::PartialBegin begin) {
  Result<transfer::PartialHead> head = transfer::head_from_proto(begin, child_.node, child_.role);
  if (!head.ok()) co_return head.error();
  current_.emplace().partial = *head;
  co_return co_await begin_with(std::move(*head));
}

template <typename Head>
net::Awaitable<Status> Intake::begin_with(Head head) {
  const bool is_update = current_->update.has_value();
  Result<Admitted> admitted = co_await ask(runtime_.strand, [&] { return admit(head); });
  if (!admitted.ok()) {
    co_return co_await refuse(admitted.error(), is_update && admitted.error().code == Code::kInvalidArgument);
  }
  if (admitted->kept) {
    runtime_.log.info("transfer goes on", {{"child", child_.name}, {"chunks", admitted->kept->received().chunks}});
  }
  Result<transfer::Incoming> incoming =
      start(std::move(head), std::move(admitted->terms), std::move(admitted->kept), staging_);
  if (!incoming.ok()) {
    co_return co_await refuse(incoming.error(), is_update && incoming.error().code != Code::kUnavailable);
  }
  current_->incoming.emplace(std::move(*incoming));
  co_return Status{};
}

Result<Intake::Admitted> Intake::admit(const transfer::UpdateHead& head) {
  std::optional<transfer::Incoming> kept = book_.take(head);
  FLUVIAL_TRY(book_.admit(head));
  FLUVIAL_ASSIGN(transfer::Terms terms, owner_.admit(head));
  return Admitted{std::move(terms), std::move(kept)};
}

Result<Intake::Admitted> Intake::admit(const transfer::PartialHead& head) {
  std::optional<transfer::Incoming> kept = book_.take(head);
  FLUVIAL_ASSIGN(transfer::Terms terms, owner_.admit(head));
  return Admitted{std::move(terms), std::move(kept)};
}

std::optional<transfer::Incoming> Intake::cut_off() {
  std::optional<transfer::Incoming> incoming;
  if (current_ && current_->incoming) incoming.emplace(std::move(*current_->incoming));
  current_.reset();
  return incoming;
}

net::Awaitable<Status> Intake::chunk(std::uint64_t index, Buffer bytes) {
  if (!current_) co_return Error{Code::kFailedPrecondition, "a chunk without a beginning"};
  if (!current_->incoming) co_return Status{};
  const Status taken = co_await runtime_.pool.run([&] { return current_->incoming->chunk(index, std::move(bytes)); });
  if (!taken.ok()) co_return co_await refuse(taken.error(), true);
  co_return Status{};
}

net::Awaitable<Status> Intake::end(std::string sha256, Buffer integers) {
  if (!current_) co_return Error{Code::kFailedPrecondition, "an end without a beginning"};
  Status taken;
  if (current_->incoming) {
    Result<transfer::StagedArrival> arrival =
        co_await runtime_.pool.run([&] { return current_->incoming->end(sha256, integers.span()); });
    if (arrival.ok()) current_->incoming.reset();
    taken = !arrival.ok() ? Status{arrival.error()} : co_await ask(runtime_.strand, [&]() -> Status {
      FLUVIAL_TRY(book_.complete(*arrival));
      owner_.arrived(std::move(*arrival));
      return {};
    });
  } else if (current_->update) {  // refused before: the trailer may still contradict what was complete
    const Result<Digest> digest = wire::digest_from_proto(sha256);
    const transfer::UpdateHead& head = *current_->update;
    if (digest.ok())
      taken = co_await ask(runtime_.strand, [&] {
        return book_.compare(head.run, head.round, head.site, head.incarnation, head.submission, *digest);
      });
  }
  Status told;
  if (!taken.ok()) told = co_await refuse(taken.error(), true);
  current_.reset();
  co_return told;
}

// On the node's strand. Whom a refused partial must do without.
std::vector<SiteId> Intake::report(const Current& refused, const Error& error, bool tell_owner) {
  if (refused.update) {
    if (tell_owner) owner_.refused(refused.update->run, refused.update->round, {refused.update->site, error});
    return {};
  }
  const transfer::PartialHead& head = *refused.partial;
  const std::vector<SiteId> fenced = owner_.without(head);
  std::set<SiteId> without(fenced.begin(), fenced.end());
  if (error.code == Code::kConflict) {
    for (const round::Refusal& conflict : book_.conflicts(head)) {
      if (tell_owner) owner_.refused(head.run, head.round, conflict);
      without.insert(conflict.site);
    }
  }
  return {without.begin(), without.end()};
}

// Tells the child why; `tell_owner` when the site will not be in because of it.
net::Awaitable<Status> Intake::refuse(Error error, bool tell_owner) {
  Current& in = *current_;
  in.incoming.reset();
  const Result<std::vector<SiteId>> without =
      co_await ask(runtime_.strand, [&]() -> Result<std::vector<SiteId>> { return report(in, error, tell_owner); });
  const RunId run = in.update ? in.update->run : in.partial->run;
  const RoundId round = in.update ? in.update->round : in.partial->round;
  const SiteId site = in.update ? in.update->site : SiteId(0);
  const std::uint64_t sequence = in.update ? 0 : in.partial->sequence;
  child_.session->post({transfer::receipt(run, round, site, sequence, error, *without), {}});
  runtime_.log.warn(in.update ? "update refused" : "partial refused", {{"child", child_.name},
                                                                       {"run", run},
                                                                       {"round", round},
                                                                       {"code", code_name(error.code)},
                                                                       {"reason", error.message}});
  co_return Status{};
}

}  // namespace fluvial::tree
