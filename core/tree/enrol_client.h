// The client half of enrolment: from a one-time token to credentials (docs/design/identity.md).
#pragma once

#include <string>

#include "core/identity/credentials.h"
#include "core/identity/token.h"
#include "core/net/awaitable.h"
#include "core/net/settings.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::tree {

struct Enrolment {
  identity::Credentials credentials;
  identity::Member member;
  std::string region;
  std::string coordinator;  // host:port of the coordinator's member port, at the host that enrolled us
};

struct EnrolSettings {
  std::string address;  // host:port of the enrolment port; empty: the token's
  net::SessionSettings session;
  Duration reply_deadline = std::chrono::seconds(30);
};

// Signs a request with `key`, which stays here, checks the authority's pin while shaking hands, sends the token's
// secret with a signing request, and takes nothing back that does not fit: the authority is the pinned one, the
// certificate is signed by it, is for our key, and names the role and name that the token and the answer name. Once the
// coordinator has accepted a token it serves this key alone: after a lost answer the same token and key get the same
// certificate.
net::Awaitable<Result<Enrolment>> enrol(net::Executor executor, identity::EnrolmentToken token,
                                        identity::PrivateKey key, EnrolSettings settings);

// The same on a thread of the caller's, for the command line.
Result<Enrolment> enrol_blocking(const identity::EnrolmentToken& token, const identity::PrivateKey& key,
                                 const EnrolSettings& settings);

// The checks of an answer, for enrol() and its tests.
Result<Enrolment> accept_enrolment(const v1::EnrolReply& reply, const identity::PrivateKey& key,
                                   const identity::EnrolmentToken& token, const std::string& host);

}  // namespace fluvial::tree
