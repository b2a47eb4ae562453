// What the handlers of the admin API work with. On the node's strand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/service/feed.h"
#include "coordinator/service/root.h"
#include "core/store/audit_entry.h"
#include "core/store/journal.h"
#include "core/store/model_store.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator::admin {

class Events;

struct Facts {
  std::string federation;
  std::string data_dir;
  std::string pin;
  std::string enrol_address;  // host:port, as tokens name it
  std::uint16_t member_port = 0;
  std::uint16_t enrol_port = 0;
  std::uint16_t metrics_port = 0;
  std::uint64_t token_ttl_s = 3'600;
};

struct Context {
  Context(tree::Runtime& runtime_in, store::CoordinatorJournal& journal_in, store::ModelStore& models_in, Root& root_in,
          Feed& feed_in)
      : runtime(runtime_in),
        journal(journal_in),
        models(models_in),
        root(root_in),
        feed(feed_in),
        last_backup_seconds(runtime.metrics.gauge("last_backup_timestamp_seconds")) {}

  tree::Runtime& runtime;
  store::CoordinatorJournal& journal;
  store::ModelStore& models;
  Root& root;
  Feed& feed;
  Events* events = nullptr;  // set before anybody asks
  Facts facts;
  bool copying = false;  // the journal, for a backup
  std::optional<WallTime> last_backup;
  telemetry::Gauge last_backup_seconds;

  const Federation& book() const { return root.registry().book(); }
  std::string name_of(NodeId node) const { return book().name_of(node); }
  void set_last_backup(std::optional<WallTime> made);
  // What was done, after it was: the error says that it was done all the same.
  net::Awaitable<Status> record(store::AuditEntry entry);
  // "latest" and an empty text: the last run that there is.
  net::Awaitable<Result<RunId>> run_or_latest(std::string text);
};

}  // namespace fluvial::coordinator::admin
