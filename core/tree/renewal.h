// A member's own certificate: renewed in time, over a short session of its own with the coordinator, so that the
// session to the parent goes on; or on the enrolment port, when it has ended. The key stays the same.
//
// When: core/round/renewal.h. A certificate is on the disk before it is used, and the one before stays good: killed at
// any moment, the member asks again with what it has and gets the same certificate.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/identity/certificate.h"
#include "core/identity/credentials.h"
#include "core/identity/live_tls.h"
#include "core/net/signal.h"
#include "core/round/renewal.h"
#include "core/tree/runtime.h"
#include "core/tree/uplink.h"

namespace fluvial::tree {

// In the identity folder: the enrolment port, as host:port and a newline.
inline constexpr const char* kEnrolAddressFile = "enrol_address";
inline constexpr std::uint16_t kEnrolPort = 7401;  // where nobody has said another one

// Where a certificate that has ended is renewed: `setting` if it is not empty, else what the identity folder says, else
// the coordinator's host and kEnrolPort.
net::HostPort enrol_address(const std::string& setting, const std::string& folder, const net::HostPort& coordinator);

// How often a child looks whether its parent's certificate has ended (Renewal::Parts::tick_max).
Duration look_every(const config::SessionLimits& limits);

// Checks an answer of the coordinator's: the certificate leads to an authority of the answer, which the coordinator
// vouches for, is for the same node, role, name and key, and has not ended. The credentials to be saved.
Result<identity::Credentials> accept_renewal(const v1::RenewReply& reply, const identity::Credentials& before,
                                             WallTime now);

class Renewal {
 public:
  struct Parts {
    identity::Credentials credentials;
    std::string folder;  // where they stand
    net::HostPort coordinator;
    net::HostPort enrolment;
    Dial dial;
    std::shared_ptr<identity::LiveTls> client;
    std::shared_ptr<identity::LiveTls> server = {};  // an aggregator's
    wire::Protocols protocols = {};
    std::uint64_t jitter_seed = 0;
    // Where there are neither ports nor TLS: a session to the enrolment port, and (on the pool) what makes the next
    // credentials durable and uses them from then on. Without these, it is `enrolment`, `folder`, `client` and
    // `server`.
    std::function<net::Awaitable<Result<std::shared_ptr<net::Session>>>()> dial_enrolment = {};
    std::function<Status(const identity::Credentials&)> take = {};
    Duration tick_max = std::chrono::seconds(30);
  };
  Renewal(Runtime& runtime, Parts parts);

  // `dial`; and when whoever answers as the coordinator shows a certificate that this member does not accept, it renews
  // at once on the enrolment port, with no word of the coordinator's and whatever its own certificate's age: the
  // coordinator may have gone on to another authority meanwhile. Not for longer than this object.
  Dial watching(Dial dial);

  // Before run(). On the strand: the new chain, for others to be told; and once in tick_max at least, for whoever looks
  // at the ends of other certificates.
  void tell(std::function<void(const std::string& chain_pem, WallTime ends)> renewed, std::function<void()> tick);

  // On the strand.
  net::Awaitable<void> run();  // until stop()
  void stop();
  void told(Duration validity, std::uint64_t trust);  // with a lease
  std::uint64_t trust() const { return credentials_.trust; }
  WallTime ends() const { return life_.ends; }

  // As HubOptions'. Thread safe, and good for longer than this object.
  std::function<Result<identity::PeerIdentity>(const std::string& chain_pem)> verifier() const;

 private:
  net::Awaitable<Result<std::shared_ptr<net::Session>>> dial_and_look(Dial dial, net::HostPort address, Role role);
  net::Awaitable<Status> renew();
  net::Awaitable<Result<v1::RenewReply>> ask_coordinator(v1::RenewRequest request);
  net::Awaitable<Result<v1::RenewReply>> ask_enrolment(v1::RenewRequest request);
  net::Awaitable<Result<std::shared_ptr<net::Session>>> reach_enrolment();
  net::Awaitable<Status> save_and_use(identity::Credentials next);
  net::Awaitable<Status> take(identity::Credentials next);
  void failed(const Error& why);
  bool has_ended() const { return life_.ends <= runtime_.clock.wall_now(); }

  Runtime& runtime_;
  Parts parts_;
  identity::Credentials credentials_;
  identity::PeerIdentity self_;
  round::CertificateLife life_;
  round::RenewalTerms terms_;
  std::optional<std::uint64_t> trust_told_;
  std::shared_ptr<identity::Live<std::vector<identity::Certificate>>> authorities_;
  Rng chance_;
  double when_chance_;  // of this certificate
  unsigned failures_ = 0;
  bool refused_ = false;  // the last attempt on a session of its own: its certificate is no good there
  bool unknown_ = false;  // the coordinator's certificate is not one that this member accepts
  TimePoint not_before_;  // of the next attempt
  net::AsyncSignal wake_;
  std::shared_ptr<net::Session> session_;
  bool stopping_ = false;
  std::function<void(const std::string& chain_pem, WallTime ends)> renewed_ = [](const std::string&, WallTime) {};
  std::function<void()> tick_ = [] {};
};

}  // namespace fluvial::tree
