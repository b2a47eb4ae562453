#include "core/tree/intake.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/tree/ask.h"
#include "core/wire/mapping.h"

namespace fluvial::tree {

Intake::Intake(Runtime& runtime, HubOwner& owner, transfer::Staging staging, Child child)
    : runtime_(runtime), owner_(owner), staging_(std::move(staging)), child_(std::move(child)) {}

net::Awaitable<Status> Intake::begin(v1::UpdateBegin begin) {
  Result<transfer::UpdateHead> head = transfer::head_from_proto(begin, child_.node, child_.role);
  if (!head.ok()) co_return head.error();
  current_.emplace().update = *head;  // a submission that was cut off before is forgotten
  Result<transfer::Terms> terms = co_await ask(runtime_.strand, [&] { return owner_.admit(*head); });
  if (!terms.ok()) co_return co_await refuse(terms.error(), terms.error().code == Code::kInvalidArgument);
  Result<transfer::Incoming> incoming = transfer::Incoming::begin(std::move(*head), std::move(*terms), staging_);
  if (!incoming.ok()) co_return co_await refuse(incoming.error(), true);
  current_->incoming.emplace(std::move(*incoming));
  co_return Status{};
}

net::Awaitable<Status> Intake::begin(v1::PartialBegin begin) {
  Result<transfer::PartialHead> head = transfer::head_from_proto(begin, child_.node, child_.role);
  if (!head.ok()) co_return head.error();
  current_.emplace().partial = *head;
  Result<transfer::Terms> terms = co_await ask(runtime_.strand, [&] { return owner_.admit(*head); });
  if (!terms.ok()) co_return co_await refuse(terms.error(), false);
  Result<transfer::Incoming> incoming = transfer::Incoming::begin(std::move(*head), std::move(*terms), staging_);
  if (!incoming.ok()) co_return co_await refuse(incoming.error(), false);
  current_->incoming.emplace(std::move(*incoming));
  co_return Status{};
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
  if (!current_->incoming) {
    current_.reset();
    co_return Status{};
  }
  Result<transfer::StagedArrival> arrival =
      co_await runtime_.pool.run([&] { return current_->incoming->end(sha256, integers.span()); });
  if (!arrival.ok()) {
    const Status told = co_await refuse(arrival.error(), true);
    current_.reset();
    co_return told;
  }
  current_.reset();
  co_return co_await ask(runtime_.strand, [&] {
    owner_.arrived(std::move(*arrival));
    return Status{};
  });
}

// Tells the child why; `tell_owner` when the site will not be in because of it.
net::Awaitable<Status> Intake::refuse(Error error, bool tell_owner) {
  Current& in = *current_;
  in.incoming.reset();
  const Result<std::vector<SiteId>> without = co_await ask(runtime_.strand, [&]() -> Result<std::vector<SiteId>> {
    if (in.update && tell_owner) owner_.refused(in.update->run, in.update->round, {in.update->site, error});
    if (in.update) return std::vector<SiteId>{};
    return owner_.without(*in.partial);
  });
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
