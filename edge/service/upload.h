// Sends a submission to the parent: one at a time, from its start or from where an earlier session was cut off, until
// it is through or told to stop. Its chunks go out as they are encoded, its trailer once it is durable: without it no
// parent counts it. On the node's strand; the frames go out on the session's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/net/session.h"
#include "core/net/signal.h"
#include "core/net/task_group.h"
#include "core/store/site_store.h"
#include "core/tree/runtime.h"
#include "edge/logic/upload_rate.h"
#include "edge/update/feed.h"

namespace fluvial::edge {

struct UploadItem {
  std::shared_ptr<const store::PendingUpdate> update;  // null: it is not durable yet
  SiteId site;
  Epoch lease;
  RoundId into;  // the round that it enters: its own, or a later one
  std::shared_ptr<net::Session> session;
  std::uint64_t first_chunk = 0;  // the parent has those before it; beyond the last one: it cannot have, so from 0
  // Of one that is not durable: its chunks so far. The rest of them, and its trailer, wait for it to be sent once more,
  // as durable.
  std::shared_ptr<const Feed> feed = nullptr;
  bool goes_over = false;  // on its way into a round before it may enter this one (docs/design/late.md)

  const store::PendingInfo& info() const { return update ? update->info() : feed->info(); }
};

class Upload {
 public:
  struct Events {
    std::function<void(const UploadItem&)> begun;
    std::function<void(const UploadItem&)> ended;  // however it did
    // All of an item, durable by then, has been handed to its session; with the seconds that took.
    std::function<void(const UploadItem&, double seconds)> sent;
    // The site's signature of what it contributes, as it travels; empty: it signs nothing. On the pool.
    std::function<Result<std::string>(const store::PendingInfo&)> sign;
  };

  Upload(tree::Runtime& runtime, net::TaskGroup& tasks, UploadRate rate, Events events);

  // After what is being sent has ended; the same again on the same session and lease goes on as it is.
  void send(UploadItem item);
  void stop();
  void fed();         // a feed has further chunks
  void drop_early();  // what is not durable, and will not be sent
  // The parent refused the update: the rest of it would be thrown away. The trailer still goes: a parent that has this
  // submission already sees by its digest whether the site contradicts itself.
  void refused(RunId run, RoundId round);
  // The parent takes it no more for this round: what is sent next is sent from its beginning.
  void turned_away(RunId run, RoundId round);

  // Encoded payload handed to sessions so far, resends included.
  std::uint64_t payload_bytes() const { return payload_bytes_.load(std::memory_order_relaxed); }
  // Of the item being sent; none: nothing is.
  struct Progress {
    std::uint64_t done_bytes = 0;
    std::uint64_t total_bytes = 0;
  };
  std::optional<Progress> progress() const;

 private:
  struct Running {
    UploadItem item;
    std::atomic<std::uint64_t> chunks{0};  // that the parent has, or the session
    std::atomic<bool> stopped{false};
    std::atomic<bool> refused{false};
    std::shared_ptr<const store::PendingUpdate> durable;  // the item's, or what became of its feed; the strand's
  };
  net::Awaitable<void> run(std::shared_ptr<Running> running);
  net::Awaitable<Status> send_frames(std::shared_ptr<Running> running);
  // A chunk that is there, or the durable submission that it is in; neither, when nobody wants it any more.
  struct Source {
    std::optional<SharedBytes> chunk;
    std::shared_ptr<const store::PendingUpdate> update;
  };
  net::Awaitable<Source> until_there(std::shared_ptr<Running> running, std::uint64_t index);
  net::Awaitable<Source> until_durable(std::shared_ptr<Running> running);
  net::Awaitable<Result<SharedBytes>> chunk_of(std::shared_ptr<Running> running, std::uint64_t index);
  net::Awaitable<Status> pay(std::shared_ptr<Running> running, std::uint64_t bytes);
  void start(UploadItem item);

  tree::Runtime& runtime_;
  net::TaskGroup& tasks_;
  Events events_;
  const bool is_limited_;
  UploadRate rate_;
  net::AsyncSignal told_;  // to stop, that the rest is not wanted, or that more is there
  std::shared_ptr<Running> running_;
  std::optional<UploadItem> next_;
  std::atomic<std::uint64_t> payload_bytes_{0};
};

}  // namespace fluvial::edge
