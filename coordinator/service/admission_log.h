// Writes into the audit log who is admitted: a member that is given a lease, and an operator whose request is answered,
// when something about them is new (logic/admissions.h). An entry is durable before the request that it is about is
// answered. On the node's strand.
#pragma once

#include <string>

#include "coordinator/logic/admissions.h"
#include "core/identity/certificate.h"
#include "core/store/audit_entry.h"
#include "core/store/journal.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator {

class AdmissionLog {
 public:
  AdmissionLog(tree::Runtime& runtime, store::CoordinatorJournal& journal) : runtime_(runtime), journal_(journal) {}

  // Came from `remote`, by its certificate. An error: the log did not take it, so the peer is not to be admitted.
  net::Awaitable<Status> admitted(identity::PeerIdentity peer, std::uint64_t process, std::string remote);
  // It shows now that another machine has the same identity (logic/holders.h). The log of lines has it, too.
  net::Awaitable<void> held_twice(identity::PeerIdentity peer, std::string remote);

 private:
  net::Awaitable<Status> write(store::AuditEntry entry);

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  Admissions admissions_;
};

}  // namespace fluvial::coordinator
