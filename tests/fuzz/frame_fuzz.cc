// Prefixes, headers, and the mapping of whatever a header holds, on any bytes: an error or a value, and little memory.
// Input: 16 bytes of prefix, then a header.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "core/wire/frame.h"
#include "core/wire/mapping.h"

namespace fluvial::wire {
namespace {

void map_everything(const v1::Envelope& header) {
  (void)from_proto(header.model_begin().schema());
  (void)from_proto(header.round_open().plan());
  (void)from_proto(header.round_open().participants());
  (void)from_proto(header.round_open().counted());
  (void)from_proto(header.round_commit().contributors());
  (void)from_proto(header.partial_begin().refusals());
  (void)metrics_from_proto(header.update_begin().metrics());
  (void)role_from_proto(header.enrol_reply().role());
  (void)status_from_proto(header.goodbye().code(), header.goodbye().message());
}

void run(ByteSpan bytes) {
  if (bytes.size() < kPrefixBytes) return;
  const auto prefix = decode_prefix(bytes.first<kPrefixBytes>(), {});
  if (prefix.ok()) {
    std::byte again[kPrefixBytes];
    encode_prefix(*prefix, again);
    FLUVIAL_CHECK(std::equal(again, again + kPrefixBytes, bytes.begin()), "a prefix has one form");
  }
  const auto header = parse_header(bytes.subspan(kPrefixBytes));
  if (!header.ok()) return;
  map_everything(*header);
  const auto head = encode_head(*header, 0, {});
  FLUVIAL_CHECK(head.ok() && parse_header(head->span().subspan(kPrefixBytes)).ok(), "what was read can be written");
}

}  // namespace
}  // namespace fluvial::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::wire::run(std::as_bytes(std::span(data, size)));
  return 0;
}
