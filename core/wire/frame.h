// The frame of a session (docs/formats/frame.md): a 16-byte prefix, an Envelope, raw payload. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::wire {

inline constexpr std::size_t kPrefixBytes = 16;
inline constexpr std::uint32_t kHeaderBytesMax = 4u << 20;
inline constexpr std::uint32_t kPayloadBytesMax = 8u << 20;

struct FrameLimits {
  std::uint32_t header_bytes_max = kHeaderBytesMax;
  std::uint32_t payload_bytes_max = kPayloadBytesMax;
};

struct FramePrefix {
  std::uint32_t header_bytes = 0;
  std::uint32_t payload_bytes = 0;
  bool operator==(const FramePrefix&) const = default;
};

enum class PrefixFault { kNone, kNotAFrame, kOversizeHeader, kOversizePayload };

void encode_prefix(const FramePrefix& prefix, std::span<std::byte, kPrefixBytes> out);

// kDataLoss for bytes that are no prefix, kResourceExhausted over a limit; `fault` says which for counters. Allocates
// nothing but the message.
Result<FramePrefix> decode_prefix(std::span<const std::byte, kPrefixBytes> bytes, const FrameLimits& limits,
                                  PrefixFault* fault = nullptr);

// Parses an Envelope with a body that is known. Nesting and the number of messages inside are bounded, so the memory
// it takes stays within a small multiple of the bytes given. kDataLoss otherwise.
Result<v1::Envelope> parse_header(ByteSpan bytes);

// Prefix and header as they go out, payload to follow. kInvalidArgument over a limit.
Result<Buffer> encode_head(const v1::Envelope& header, std::size_t payload_bytes, const FrameLimits& limits);

}  // namespace fluvial::wire
