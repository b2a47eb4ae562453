// The enrolment port: a token and a request come in, a certificate goes out. The server is known by the authority's
// pin, the client by its token alone; arrivals are rate-limited. Members whose certificate has ended renew it here.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/entry_meter.h"
#include "coordinator/service/registry.h"
#include "coordinator/service/renewal_desk.h"
#include "core/identity/authority.h"
#include "core/identity/secret.h"
#include "core/net/address.h"
#include "core/net/listener.h"
#include "core/net/pace.h"

namespace fluvial::coordinator {

struct EnrolOptions {
  std::string host;
  std::uint16_t port = 0;
  std::uint64_t per_minute_max = 600;
  std::uint64_t wrong_per_minute_max = 30;  // of one address
  std::chrono::seconds certificate_validity = std::chrono::hours(24);
  std::chrono::seconds operator_validity = std::chrono::days(30);
  std::function<void(NodeId)> replaced;  // the member has another certificate than before; on the strand
};

class EnrolServer {
 public:
  EnrolServer(tree::Runtime& runtime, Registry& registry, store::CoordinatorJournal& journal,
              const identity::LiveAuthority& authority, RenewalDesk& renewals, EnrolOptions options);

  Result<std::uint16_t> open(std::shared_ptr<const identity::LiveTls> tls);
  net::Awaitable<void> run(std::uint16_t member_port);
  void stop();

 private:
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session);
  net::Awaitable<void> serve_renewal(std::shared_ptr<net::Session> session, v1::RenewRequest request);
  net::Awaitable<Status> tell_refused();
  struct Attempt {      // for the audit log
    std::string from;   // the address
    std::string token;  // its id, once it was read
  };
  net::Awaitable<Result<v1::EnrolReply>> enrol(v1::EnrolRequest request, Attempt* attempt);
  net::Awaitable<void> record_refused(Attempt attempt, std::string why);
  struct Issued {
    store::NodeRow row;
    std::vector<identity::Certificate> chain;  // the member's certificate first
    std::uint64_t enrolled_before = 0;
    bool again = false;  // it was issued before: the first answer was lost on its way
  };
  Result<Issued> redeem(const identity::Secret& secret, ByteSpan csr, WallTime now, const Attempt& attempt);
  Result<Issued> issue(const store::TokenRow& token, ByteSpan csr, WallTime now, const Attempt& attempt);
  Result<std::optional<Issued>> issued_before(const store::TokenRow& token, ByteSpan csr, WallTime now);
  std::chrono::seconds validity_of(Role role) const;
  void count(const char* result) const;
  // Thread safe.
  Status may_sign();                             // one more certificate: the authority's processor is everybody's
  Status may_come_again(NodeId member);          // with what it was enrolled with
  bool may_be_wrong(const std::string& remote);  // one more wrong token: its address's own

  tree::Runtime& runtime_;
  Registry& registry_;
  store::CoordinatorJournal& journal_;
  const identity::LiveAuthority& authority_;
  RenewalDesk& renewals_;
  EnrolOptions options_;
  std::shared_ptr<net::Listener> listener_;
  std::uint16_t member_port_ = 0;
  std::mutex mutex_;
  net::Pace signatures_;
  std::map<NodeId, net::Pace> again_;  // of members that the journal knows
  net::AddressPaces wrong_;
  EntryMeter refusals_;  // on the node's strand
};

}  // namespace fluvial::coordinator
