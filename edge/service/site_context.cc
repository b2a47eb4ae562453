#include "edge/service/site_context.h"

#include <chrono>
#include <limits>
#include <utility>

#include "core/net/deadline.h"

namespace fluvial::edge {

void SiteContext::spawn(std::string what, net::Awaitable<void> task) {
  tasks.spawn(runtime.strand, std::move(what), std::move(task), [this](const std::string& of, const std::string& why) {
    (void)ends_by(Error{Code::kInternal, why}, "task \"" + of + "\"");
  });
}

void SiteContext::stop() {
  stopping = true;
  stopped.notify_all();
}

// NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters): its caller waits for it
net::Awaitable<bool> SiteContext::pause(net::Backoff& backoff) {
  const Status slept = co_await net::with_deadline(stopped.wait(), backoff.next());
  (void)slept.ok();  // the wait is over, or `stopping` is set
  co_return !stopping;
}

net::Awaitable<bool> SiteContext::pause_for_room() {
  constexpr std::chrono::milliseconds kMoment{500};
  const Status slept = co_await net::with_deadline(stopped.wait(), kMoment);
  (void)slept.ok();
  co_return !stopping;
}

net::Awaitable<std::uint64_t> SiteContext::ask_free_bytes() {
  const Result<std::uint64_t> free =
      co_await runtime.pool.run([this]() -> Result<std::uint64_t> { return free_bytes(); });
  co_return free.ok() ? *free : std::numeric_limits<std::uint64_t>::max();  // the process ends
}

bool SiteContext::store_failed() { return ends_by(store->fault(), "the site's store"); }

bool SiteContext::gpu_failed() { return gpus && ends_by(gpus->fault(), "a GPU"); }

bool SiteContext::ends_by(const std::optional<Error>& fault, std::string_view what) {
  if (!fault) return false;
  if (!failure) {
    failure = fault;
    report.failed(what, *fault);
    request_stop();
  }
  return true;
}

Pending pending_of(const store::PendingInfo& info) {
  return {info.start.run, info.start.round, info.digest, info.incarnation, info.submission, info.start.from};
}

}  // namespace fluvial::edge
