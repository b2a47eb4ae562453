#include "core/tree/intake.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/tree/ask.h"

namespace fluvial::tree {

Intake::Intake(Runtime& runtime, HubOwner& owner, transfer::RoundBook& book, transfer::Staging staging, Child child)
    : runtime_(runtime), owner_(owner), book_(book), staging_(std::move(staging)), child_(std::move(child)) {}

net::Awaitable<Status> Intake::begin(v1::UpdateBegin begin) {
  Result<transfer::UpdateHead> head = transfer::head_from_proto(begin, child_.node, child_.role);
  if (!head.ok()) co_return head.error();
  current_.emplace(std::move(*head));
  co_await admit();
  co_return Status{};
}

net::Awaitable<Status> Intake::begin(v1::PartialBegin begin) {
  Result<transfer::PartialHead> head = transfer::head_from_proto(begin, child_.node, child_.role);
  if (!head.ok()) co_return head.error();
  current_.emplace(std::move(*head));
  co_await admit();
  co_return Status{};
}

telemetry::Field Intake::sender() const { return {child_.role == Role::kSite ? "site" : "member", child_.name}; }

net::Awaitable<void> Intake::admit() {
  Status taken = co_await ask(runtime_.strand, [&] { return current_->admit(book_, owner_); });
  if (taken.ok() && current_->kept_chunks() > 0) {
    runtime_.log.info("transfer goes on", {sender(), {"chunks", current_->kept_chunks()}});
  }
  if (taken.ok()) taken = current_->start(staging_);
  if (!taken.ok()) co_await refuse(taken.error());
}

std::optional<transfer::Incoming> Intake::cut_off() {
  if (!current_) return std::nullopt;
  std::optional<transfer::Incoming> incoming = current_->cut_off();
  current_.reset();
  return incoming;
}

net::Awaitable<Status> Intake::chunk(std::uint64_t index, Buffer bytes) {
  if (!current_) co_return Error{Code::kFailedPrecondition, "a chunk without a beginning"};
  if (current_->is_refused()) co_return Status{};
  Status taken = co_await ask(runtime_.strand, [&] { return current_->may_go_on(owner_); });
  if (taken.ok()) taken = co_await runtime_.pool.run([&] { return current_->chunk(index, std::move(bytes)); });
  if (!taken.ok()) co_await refuse(taken.error());
  co_return Status{};
}

net::Awaitable<Status> Intake::end(v1::UpdateEnd end, Buffer integers) {
  if (!current_) co_return Error{Code::kFailedPrecondition, "an end without a beginning"};
  const auto forged = [&](const transfer::Brought& brought) { return owner_.forged(child_, brought); };
  Status taken = co_await runtime_.pool.run([&] { return current_->end(end, integers.span(), forged); });
  if (taken.ok()) taken = co_await ask(runtime_.strand, [&] { return current_->hand_over(book_, owner_); });
  if (!taken.ok()) {
    co_await refuse(taken.error());
  } else if (!current_->is_refused()) {
    const auto& update = current_->update();
    runtime_.log.debug(update ? "update received" : "partial received",
                       {sender(),
                        {"run", update ? update->run : current_->partial()->run},
                        {"round", update ? update->round : current_->partial()->round}});
  }
  current_.reset();
  co_return Status{};
}

net::Awaitable<void> Intake::refuse(Error error) {
  const Result<v1::Envelope> receipt =
      co_await ask(runtime_.strand, [&]() -> Result<v1::Envelope> { return current_->refuse(error, book_, owner_); });
  child_.session->post({*receipt, {}});
  runtime_.log.warn(
      current_->update() ? "update refused; the round goes on without it" : "partial refused; the child makes another",
      {sender(),
       {"run", receipt->receipt().run()},
       {"round", receipt->receipt().round()},
       {"code", code_name(error.code)},
       {"reason", error.message}});
}

}  // namespace fluvial::tree
