// Prefixes, headers, and the mapping of any header's content, on any bytes: an error or a value, and little memory.
// Input: 16 bytes of prefix, then a header.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "core/wire/frame.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "core/wire/report_mapping.h"

namespace fluvial::wire {
namespace {

const v1::RoundOpen& of(const v1::Envelope& header, const v1::RoundOpen&) { return header.round_open(); }
const v1::RoundCommit& of(const v1::Envelope& header, const v1::RoundCommit&) { return header.round_commit(); }
std::size_t size_of(const v1::Envelope& header) { return header.ByteSizeLong(); }

// A record that was read can be written, and is read again as the same bytes.
template <typename Message>
void check_record(const Message& message) {
  const auto record = from_proto(message);
  if (!record.ok()) return;
  const v1::Envelope once = to_envelope(*record);
  const auto again = from_proto(of(once, message));
  FLUVIAL_CHECK(again.ok(), "what was read can be written and read again");
  FLUVIAL_CHECK(size_of(to_envelope(*again)) == size_of(once), "a record keeps what it holds");
}

// What was read of reports is what a reader of the next node accepts, and finds the same.
void check_report(const v1::Report& message) {
  const auto reports = from_proto(message);
  if (!reports.ok()) return;
  std::vector<round::NodeReport> again;
  for (const v1::Envelope& envelope : to_envelopes(*reports)) {
    const auto head = encode_head(envelope, 0, {});
    FLUVIAL_CHECK(head.ok(), "a report fits a frame");
    const auto header = parse_header(head->span().subspan(kPrefixBytes));
    FLUVIAL_CHECK(header.ok(), "what is passed on can be read");
    const auto read = from_proto(header->report());
    FLUVIAL_CHECK(read.ok(), "what is passed on is accepted");
    again.insert(again.end(), read->begin(), read->end());
  }
  FLUVIAL_CHECK(again == *reports, "a report keeps what it holds");
}

void map_everything(const v1::Envelope& header) {
  check_record(header.round_open());
  check_record(header.round_commit());
  check_report(header.report());
  (void)from_proto(header.model_begin().model());
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
