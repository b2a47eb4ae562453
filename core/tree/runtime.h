// What every part of a node's service is given: executors, pool, clock, files, log. Made once in main, passed by
// reference, outlives everything it is given to.
#pragma once

#include <cstddef>
#include <memory>

#include "core/base/clock.h"
#include "core/config/settings.h"
#include "core/net/awaitable.h"
#include "core/net/backoff.h"
#include "core/net/hooks.h"
#include "core/net/settings.h"
#include "core/net/worker_pool.h"
#include "core/store/file_system.h"
#include "core/telemetry/log.h"
#include "core/telemetry/metrics.h"

namespace fluvial::tree {

struct Runtime {
  net::Executor io;       // the threads that serve sessions
  net::Executor strand;   // the node's own: state machines live here, and need no lock
  net::WorkerPool& pool;  // kernels, hashing, fsync
  std::size_t pool_threads = 1;
  const Clock& clock;
  store::FileSystem& files;
  telemetry::Logger log;
  telemetry::Metrics& metrics;
  std::shared_ptr<net::NetHooks> hooks;  // counts and logs what core/net reports
  net::SessionSettings session;
  net::BackoffSettings backoff;
  net::Executor strangers = io;  // a thread of its own, for whoever has no certificate yet: rounds never wait for it
  net::Executor administration = io;  // likewise, for operators at the admin API over the network
};

// Threads for sessions, on a machine of so many cores. A site has one parent. A parent seals and opens the bytes of all
// its children, each on its strand; the other half of the cores is for the kernels, which cost as much a byte, and four
// threads carry more than its network does.
std::size_t io_threads(const config::CommonSettings& settings, Role role, std::size_t cores);

net::SessionSettings session_settings(const config::SessionLimits& limits);
net::BackoffSettings backoff_settings(const config::SessionLimits& limits);

// Counts sessions, bytes and refusals, and writes one line for each refusal.
std::shared_ptr<net::NetHooks> observing_hooks(telemetry::Metrics& metrics, telemetry::Logger log);

}  // namespace fluvial::tree
