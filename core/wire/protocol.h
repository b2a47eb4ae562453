// The protocol of members' sessions, which both ends of an edge of the tree name in Hello and Welcome
// (docs/formats/frame.md, versions of the protocol).
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/result.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::wire {

inline constexpr std::uint32_t kProtocol = 3;
// From version 0.2 on: the one before kProtocol, so that neighbours of two versions that follow each other understand
// each other, whichever is updated first. Protocol 1, of 0.1, is spoken no more.
inline constexpr std::uint32_t kProtocolOldest = 2;
inline constexpr std::uint32_t kProtocolOfSchemaParts = 3;  // from it on a schema may take several ModelBegins

// What one end speaks.
struct Protocols {
  std::uint32_t oldest = kProtocolOldest;
  std::uint32_t newest = kProtocol;
};

// The parent's choice: the newest that both speak. kFailedPrecondition names both versions and which side must be
// updated; the child is told the same.
Result<std::uint32_t> choose_protocol(const Protocols& own, const v1::Hello& hello, std::string_view software);
// The child's check of that choice.
Status check_protocol(const Protocols& own, const v1::Welcome& welcome, std::string_view software);

}  // namespace fluvial::wire
