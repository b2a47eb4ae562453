// A certificate that a peer says to have since its session began.
#pragma once

#include "core/identity/certificate.h"

namespace fluvial::tree {

// For logs and sessions_refused_total: a session that has outlived its peer's certificate.
inline constexpr const char* kCertificateEnded = "certificate_ended";

// kUnauthenticated unless it is for the same node, role, name and key.
Status check_renewed(const identity::PeerIdentity& of_session, const identity::PeerIdentity& shown);

}  // namespace fluvial::tree
