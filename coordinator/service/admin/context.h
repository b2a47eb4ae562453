// What the handlers of the admin API work with. On the node's strand.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/model_reads.h"
#include "coordinator/service/admin/uploads.h"
#include "coordinator/service/admin/watches.h"
#include "coordinator/service/authorities.h"
#include "coordinator/service/feed.h"
#include "coordinator/service/root.h"
#include "core/identity/authority.h"
#include "core/net/pace.h"
#include "core/store/audit_entry.h"
#include "core/store/journal.h"
#include "core/store/model_store.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator::admin {

class Events;

// A certificate of the same key that lasts longer, for an operator who was admitted.
struct Renewal {
  std::vector<identity::Certificate> chain;
  std::string ca_pem;       // whom to trust from now on
  std::uint64_t trust = 0;  // the number of that list
  Digest authority{};       // as certificates are listed by
};
using Renew = std::function<Result<Renewal>(const identity::PeerIdentity& who, ByteSpan csr, WallTime now)>;

struct Facts {
  std::string federation;
  std::string data_dir;
  std::string pin;
  std::string enrol_address;  // host:port, as tokens name it
  std::uint16_t member_port = 0;
  std::uint16_t enrol_port = 0;
  std::uint16_t metrics_port = 0;
  std::uint16_t admin_port = 0;  // 0: the admin API is on its socket alone
  std::uint64_t token_ttl_s = 3'600;
  std::uint64_t upload_bytes_max = std::uint64_t{1} << 40;
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
  Uploads uploads;
  Watches watches;
  ModelReads model_reads;
  std::map<NodeId, net::Pace> renewals;                   // of operators: each is a row in the journal
  AdmissionLog* admissions = nullptr;                     // none: no entry says who is admitted
  Renew renew;                                            // none: the admin API is on its socket alone
  Authorities* authorities = nullptr;                     // set before anybody asks
  std::function<Status(WallTime now)> authority_changed;  // on the strand: the own certificate follows
  bool copying = false;                                   // the journal, for a backup
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
