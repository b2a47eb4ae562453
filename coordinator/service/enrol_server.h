// The enrolment port: a token and a request come in, a certificate goes out. The server is known by the authority's
// pin, the client by its token alone; arrivals are rate-limited.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "coordinator/service/registry.h"
#include "core/identity/authority.h"
#include "core/identity/secret.h"
#include "core/net/listener.h"

namespace fluvial::coordinator {

struct EnrolOptions {
  std::string host;
  std::uint16_t port = 0;
  std::uint64_t per_minute_max = 60;
  std::chrono::days certificate_validity{90};
  std::function<void(NodeId)> replaced;  // the member has another certificate than before; on the strand
};

class EnrolServer {
 public:
  EnrolServer(tree::Runtime& runtime, Registry& registry, store::CoordinatorJournal& journal,
              const identity::CertificateAuthority& authority, EnrolOptions options);

  Result<std::uint16_t> open(std::shared_ptr<const identity::TlsContext> tls);
  net::Awaitable<void> run(std::uint16_t member_port);
  void stop();

 private:
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session);
  net::Awaitable<Result<v1::EnrolReply>> enrol(v1::EnrolRequest request);
  struct Issued {
    store::NodeRow row;
    identity::Certificate certificate;
    std::uint64_t enrolled_before = 0;
    bool again = false;  // it was issued before: the first answer was lost on its way
  };
  Result<Issued> redeem(const identity::Secret& secret, ByteSpan csr, WallTime now);
  Result<Issued> issue(const store::TokenRow& token, ByteSpan csr, WallTime now);
  Result<std::optional<Issued>> issued_before(const store::TokenRow& token, ByteSpan csr, WallTime now);
  void count(const char* result) const;
  bool take_turn();  // the rate limit, on the node's strand

  tree::Runtime& runtime_;
  Registry& registry_;
  store::CoordinatorJournal& journal_;
  const identity::CertificateAuthority& authority_;
  EnrolOptions options_;
  std::shared_ptr<net::Listener> listener_;
  std::uint16_t member_port_ = 0;
  double turns_;
  TimePoint turns_at_;
};

}  // namespace fluvial::coordinator
