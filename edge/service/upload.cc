#include "edge/service/upload.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <utility>

#include "core/net/deadline.h"
#include "core/transfer/outgoing.h"
#include "core/tree/ask.h"
#include "core/wire/mapping.h"

namespace fluvial::edge {
namespace {

std::uint64_t first_chunk(const UploadItem& item) {
  return item.first_chunk <= item.info().start.chunk_count ? item.first_chunk : 0;
}

}  // namespace

Upload::Upload(tree::Runtime& runtime, net::TaskGroup& tasks, UploadRate rate, Events events)
    : runtime_(runtime),
      tasks_(tasks),
      events_(std::move(events)),
      is_limited_(rate.is_limited()),
      rate_(rate),
      told_(runtime.strand) {}

// Chunks of one update are about as long as each other.
std::optional<Upload::Progress> Upload::progress() const {
  if (!running_) return std::nullopt;
  const store::PendingInfo& info = running_->durable ? running_->durable->info() : running_->item.info();
  const double done = static_cast<double>(running_->chunks.load(std::memory_order_relaxed)) /
                      static_cast<double>(std::max<std::uint64_t>(1, info.start.chunk_count));
  return Progress{static_cast<std::uint64_t>(done * static_cast<double>(info.chunk_bytes)), info.chunk_bytes};
}

void Upload::send(UploadItem item) {
  if (!running_) return start(std::move(item));
  const UploadItem& now = running_->item;
  const bool same = now.info().submission == item.info().submission && now.session == item.session &&
                    now.lease == item.lease && (now.into == item.into || now.goes_over);
  if (same && !running_->stopped && !running_->durable) {  // what was sent early goes on, and may be durable now
    running_->durable = std::move(item.update);
    told_.notify_all();
    return;
  }
  if (same && !running_->stopped && !running_->refused) return;
  if (!same) running_->stopped = true;
  told_.notify_all();
  next_ = std::move(item);
}

void Upload::stop() {
  next_.reset();
  if (running_) running_->stopped = true;
  told_.notify_all();
}

void Upload::fed() { told_.notify_all(); }

void Upload::drop_early() {
  if (next_ && !next_->update) next_.reset();
  if (!running_ || running_->durable) return;
  running_->stopped = true;
  told_.notify_all();
}

void Upload::refused(RunId run, RoundId round) {
  if (!running_) return;
  const UploadItem& now = running_->item;
  if (now.info().start.run == run && now.into == round) {
    running_->refused = true;
    if (!running_->durable) running_->stopped = true;  // once it is durable it begins anew
  }
  told_.notify_all();
}

void Upload::turned_away(RunId run, RoundId round) {
  if (!running_) return;
  UploadItem& now = running_->item;
  if (now.info().start.run == run && now.into == round) now.goes_over = false;
}

void Upload::start(UploadItem item) {
  running_ = std::make_shared<Running>();
  running_->item = std::move(item);
  running_->durable = running_->item.update;
  tasks_.spawn(runtime_.strand, "upload", run(running_));
  events_.begun(running_->item);
}

net::Awaitable<void> Upload::run(std::shared_ptr<Running> running) {
  const TimePoint begun = runtime_.clock.now();
  const Status status = co_await tree::run_on(running->item.session->executor(), send_frames(running));
  const double seconds = std::chrono::duration<double>(runtime_.clock.now() - begun).count();
  running_.reset();
  running->item.update = running->durable;
  events_.ended(running->item);
  if (status.ok()) {
    events_.sent(running->item, seconds);
  } else if (status.error().code != Code::kCancelled) {
    const store::PendingStart& start = running->item.info().start;
    runtime_.log.warn("update not sent; it is sent again when the parent asks",
                      {{"run", start.run}, {"round", start.round}, {"reason", status.error().to_string()}});
  }
  if (next_ && !running_) start(*std::exchange(next_, std::nullopt));
}

// On the node's strand.
net::Awaitable<Upload::Source> Upload::until_there(std::shared_ptr<Running> running, std::uint64_t index) {
  while (!running->durable && !running->stopped) {
    std::optional<SharedBytes> chunk = running->item.feed->chunk(index);
    if (chunk) co_return Source{std::move(chunk), nullptr};
    co_await told_.wait();
  }
  co_return Source{std::nullopt, running->durable};
}

// On the node's strand.
net::Awaitable<Upload::Source> Upload::until_durable(std::shared_ptr<Running> running) {
  while (!running->durable && !running->stopped) co_await told_.wait();
  co_return Source{std::nullopt, running->durable};
}

// On the node's strand: until so much more may have been sent, or nobody wants the rest any more.
net::Awaitable<Status> Upload::pay(std::shared_ptr<Running> running, std::uint64_t bytes) {
  rate_.sent(bytes, runtime_.clock.now());
  while (!running->stopped && !running->refused) {
    const Duration left = rate_.due() - runtime_.clock.now();
    if (left <= Duration::zero()) break;
    (void)co_await net::with_deadline(told_.wait(), left);
  }
  co_return Status{};
}

net::Awaitable<Result<SharedBytes>> Upload::chunk_of(std::shared_ptr<Running> running, std::uint64_t index) {
  Source source{std::nullopt, running->item.update};
  if (!source.update) source = co_await tree::run_on(runtime_.strand, until_there(running, index));
  if (source.chunk) co_return std::move(*source.chunk);
  if (!source.update) co_return Error{Code::kCancelled, "it is not there, and nobody wants it"};
  if (source.update->in_memory()) co_return source.update->chunk(index);
  co_return co_await runtime_.pool.run([update = source.update, index] { return update->chunk(index); });
}

// On the session's executor. A chunk is read while the ones before it are on their way; the session bounds how many.
net::Awaitable<Status> Upload::send_frames(std::shared_ptr<Running> running) {
  const std::shared_ptr<net::Session> session = running->item.session;
  const store::PendingInfo info = running->item.info();
  const Error stopped{Code::kCancelled, "the upload was stopped"};
  const std::uint64_t first = first_chunk(running->item);
  running->chunks.store(first, std::memory_order_relaxed);
  const UploadItem& item = running->item;
  Status sent = co_await session->send({transfer::update_begin(info, item.site, item.lease, first, item.into), {}});
  if (!sent.ok()) co_return sent.error();
  for (std::uint64_t index = first; index < info.start.chunk_count; ++index) {
    if (running->stopped) co_return stopped;
    Result<SharedBytes> chunk = co_await chunk_of(running, index);
    if (!chunk.ok()) co_return chunk.error();
    if (running->stopped) co_return stopped;
    if (running->refused) break;
    const std::uint64_t size = chunk->bytes.size();
    net::OutFrame frame;
    frame.header.mutable_update_chunk()->set_index(index);
    frame.payload = std::move(*chunk);
    sent = co_await session->send(std::move(frame));
    if (!sent.ok()) co_return sent.error();
    payload_bytes_.fetch_add(size, std::memory_order_relaxed);
    running->chunks.store(index + 1, std::memory_order_relaxed);
    if (is_limited_) (void)co_await tree::run_on(runtime_.strand, pay(running, size));
  }
  std::shared_ptr<const store::PendingUpdate> update = running->item.update;
  if (!update) update = (co_await tree::run_on(runtime_.strand, until_durable(running))).update;
  if (running->stopped || !update) co_return stopped;
  std::string signature;
  Result<SharedBytes> trailer = co_await runtime_.pool.run([&]() -> Result<SharedBytes> {
    FLUVIAL_ASSIGN(signature, events_.sign(update->info()));
    return update->trailer();
  });
  if (!trailer.ok()) co_return trailer.error();
  if (running->stopped) co_return stopped;
  const std::uint64_t size = trailer->bytes.size();
  net::OutFrame end;
  end.header.mutable_update_end()->set_sha256(wire::digest_to_proto(update->info().digest));
  end.header.mutable_update_end()->set_signature(std::move(signature));
  if (size > 0) end.payload = std::move(*trailer);
  sent = co_await session->send(std::move(end));
  if (!sent.ok()) co_return sent.error();
  payload_bytes_.fetch_add(size, std::memory_order_relaxed);
  co_return running->refused ? Status{stopped} : Status{};
}

}  // namespace fluvial::edge
