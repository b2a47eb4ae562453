// Leases as the coordinator states them, so that a child can show its own to the parent that it names.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/identity/certificate.h"
#include "core/round/lease.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::tree {

inline constexpr std::size_t kLeaseBytesMax = 512;  // of a statement

Result<v1::Signed> sign_lease(const identity::PrivateKey& coordinator, const round::LeaseTerms& terms,
                              WallTime granted);

// kUnauthenticated unless the coordinator, whose key this is, has signed it; kInvalidArgument when it is no lease.
Result<round::LeaseTerms> read_lease(const identity::PublicKey& coordinator, const v1::Signed& lease);

round::Party party_of(const identity::PeerIdentity& peer);

}  // namespace fluvial::tree
