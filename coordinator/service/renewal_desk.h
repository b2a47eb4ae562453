// Issues certificates to members that have one: of the same key, for longer. Those whose certificate is good come on a
// session of theirs; one whose certificate has ended comes to the enrolment port and shows it there.
//
// The serial is a hash of the one before and the key. So whoever asks again with the certificate before, because the
// answer was lost, gets the same one again (serial and dates), as long as more than half of its life is left.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/entry_meter.h"
#include "coordinator/service/registry.h"
#include "core/identity/authority.h"
#include "core/identity/certificate.h"
#include "core/net/pace.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator {

struct RenewalOptions {
  std::chrono::seconds validity{std::chrono::hours(24)};
  std::chrono::seconds ended_max{std::chrono::days(30)};  // how long ago a certificate may have ended
  std::uint64_t per_minute_max = 600;                     // its own: enrolments do not use it up
};

class RenewalDesk {
 public:
  RenewalDesk(tree::Runtime& runtime, Registry& registry, store::CoordinatorJournal& journal,
              const identity::LiveAuthority& authority, RenewalOptions options);

  // On any strand; the reply says what became of it. `holder`: by a handshake.
  net::Awaitable<v1::RenewReply> renew(identity::PeerIdentity holder, v1::RenewRequest request, std::string from);
  // With the certificate in the request. kUnauthenticated: it is nobody's who may renew it, and charged to its address.
  net::Awaitable<Result<v1::RenewReply>> renew_ended(v1::RenewRequest request, std::string from);

  std::chrono::seconds validity() const { return options_.validity; }

 private:
  struct Issued {
    std::vector<identity::Certificate> chain;
    WallTime issued;
    bool again = false;
    bool refuses_more = false;  // somebody is refused from now on who was not before
  };
  struct Place {  // for a certificate: a new one, or one that was issued
    identity::Serial serial;
    std::optional<store::CertificateRow> row;
  };
  // Blocking, thread safe.
  Status may_renew(const identity::PeerIdentity& holder, ByteSpan csr);
  Result<Place> place_after(const identity::PeerIdentity& holder, ByteSpan csr, WallTime now);
  struct Asked {
    std::string csr;
    std::uint64_t trust = 0;  // which list of authorities the holder trusts
    std::string from;
  };
  Result<Issued> issue(const identity::PeerIdentity& holder, const Asked& asked, WallTime now);
  Result<bool> note_shown(const identity::PeerIdentity& holder, std::uint64_t trust, WallTime now);
  net::Awaitable<Status> tell_refused();
  Result<identity::PeerIdentity> holder_of(const std::string& certificate_pem, WallTime now) const;
  Status may_ask(NodeId member);
  Status may_sign();

  net::Awaitable<Result<v1::RenewReply>> answer(identity::PeerIdentity holder, Asked asked);
  net::Awaitable<void> record_refused(std::string member, std::string from, Error why);
  void count(const char* result) const;

  tree::Runtime& runtime_;
  Registry& registry_;
  store::CoordinatorJournal& journal_;
  const identity::LiveAuthority& authority_;
  RenewalOptions options_;
  std::mutex mutex_;
  net::Pace signatures_;
  std::map<NodeId, net::Pace> paces_;  // of members that the journal knows
  EntryMeter refusals_;                // on the node's strand
};

}  // namespace fluvial::coordinator
