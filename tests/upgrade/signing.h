// What members of the fixtures sign, with keys that are constants. For tests alone.
#pragma once

#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/signature.h"
#include "core/identity/key.h"
#include "core/identity/signature.h"
#include "core/round/history.h"
#include "core/round/lease.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::upgrade {

inline constexpr const char* kCoordinator = "coordinator";
inline constexpr round::HistoryId kRecordedHistory{0x1122334455667788};  // of the session's statements

// A member's key by its name. Ed25519: its signatures are the same in each recording. Fixtures of older versions are
// checked with these keys, so none ever changes.
identity::PrivateKey recorded_key(std::string_view member);
identity::PublicKey recorded_public_key(std::string_view member);

Signature sign_as(std::string_view member, std::string_view kind, const std::string& body);
v1::Signed signed_by_coordinator(std::string_view kind, const std::string& body);
v1::Signed signed_lease(const round::LeaseTerms& terms);
// Node 9, the key of hospital-c and a serial, in kRecordedHistory.
v1::Denials signed_denials(std::uint64_t number);

}  // namespace fluvial::upgrade
