// Keys and serials of simulated certificates. Inside this room only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/identity/authority.h"
#include "core/identity/key.h"
#include "core/identity/signature.h"
#include "simulator/world/host.h"

namespace fluvial::simulator {

inline constexpr WallTime kCertificatesEnd = std::chrono::sys_days(std::chrono::year(2200) / 1 / 1);
// By which a session is known as a thief's, whatever certificate its parent takes it to show.
inline constexpr WallTime kThiefsEnd = kCertificatesEnd - std::chrono::hours(1);

// The same for each world: making one takes longer than using it. Worlds run on several threads.
std::pair<identity::PrivateKey, identity::PublicKey> key_number(std::size_t number);
std::string serial_of(HostId host, std::uint64_t enrolment);
const identity::Issuer& simulated_issuer(std::size_t number);                 // likewise, from 0 on
std::shared_ptr<const identity::CertificateAuthority> simulated_authority();  // the first one; its certificates end

}  // namespace fluvial::simulator
