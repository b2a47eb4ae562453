// What the parts of a site's service share. On the node's strand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/identity/key.h"
#include "core/net/backoff.h"
#include "core/net/signal.h"
#include "core/net/task_group.h"
#include "core/round/span.h"
#include "core/store/site_store.h"
#include "core/tree/runtime.h"
#include "edge/gpu/site_gpus.h"
#include "edge/logic/worker_outcomes.h"
#include "edge/service/site_report.h"

namespace fluvial::edge {

// Of the disk, beside the files of an update: for the journal's pages.
inline constexpr std::uint64_t kRoomMarginBytes = 1 << 20;

struct SiteContext {
  // An exception in it ends the site: the machine would wait for ever for what the task was to do.
  void spawn(std::string what, net::Awaitable<void> task);
  void stop();
  // Until `backoff` has something tried again. False: the site is stopping.
  net::Awaitable<bool> pause(net::Backoff& backoff);
  // The same for room on its disk: a moment, for somebody may have made some.
  net::Awaitable<bool> pause_for_room();
  net::Awaitable<std::uint64_t> ask_free_bytes();  // by `free_bytes`, on the pool
  // Only a process that starts anew knows what is on the disk, and has a GPU answer again: this one ends, and says why.
  bool store_failed();
  bool gpu_failed();
  // Of what this site does for a round.
  void span_begun(RunId run, RoundId round, round::SpanKind kind) {
    spans.begun(run, round, kind, runtime.clock.now());
  }
  void span_ended(RunId run, RoundId round, round::SpanKind kind) {
    spans.ended(run, round, kind, runtime.clock.now());
  }

  tree::Runtime& runtime;
  net::TaskGroup& tasks;
  SiteId self;
  std::unique_ptr<store::SiteStore> store;
  std::shared_ptr<SiteGpus> gpus;  // null: none
  SiteReport& report;
  std::optional<identity::PrivateKey> key = {};  // the site's own; none: it signs nothing
  WorkerOutcomes& outcomes;
  std::function<void()> request_stop;
  std::function<bool(RunId)> is_over;  // a run
  net::AsyncSignal stopped;
  round::SpanLog spans = {};
  std::string name = {};
  DigestKind digest_kind = DigestKind::kStream;  // of what is encoded: the last parent takes it
  bool stopping = false;
  std::optional<Error> failure = {};  // why the process ends of itself
  // Of the store's disk, with the spare files that are written again. Blocking, thread safe. None: nobody knows.
  std::function<std::uint64_t()> free_bytes = {};

 private:
  bool ends_by(const std::optional<Error>& fault, std::string_view what);
};

// Of a submission, as the machine knows it.
Pending pending_of(const store::PendingInfo& info);

}  // namespace fluvial::edge
