#include "core/wire/frame.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/wire_format_lite.h>

#include <array>
#include <cstring>

#include "core/wire/silence.h"

namespace fluvial::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr std::array<std::byte, 4> kMagic = {std::byte{'F'}, std::byte{'L'}, std::byte{'V'}, std::byte{'1'}};

constexpr int kNestingMax = 8;  // the deepest message of ours has 5
// A message in memory takes up to some 200 bytes though it may take 2 on the wire. One for each 16 bytes, and some for
// small headers, is more than any of ours has.
constexpr std::size_t kBytesForEachMessage = 16;
constexpr std::size_t kMessagesFree = 64;

Error malformed(std::string_view what) { return {Code::kDataLoss, "the frame's header " + std::string(what)}; }

// Walks the wire format along the schema and counts the messages inside, before memory is taken for them.
bool count_messages(CodedInputStream* in, const Descriptor* type, int depth, std::size_t* left) {
  while (const std::uint32_t tag = in->ReadTag()) {
    const FieldDescriptor* field = type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool is_message = field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
                            WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (!is_message) {
      if (!WireFormatLite::SkipField(in, tag)) return false;
      continue;
    }
    if (depth == kNestingMax || (*left)-- == 0) return false;
    int size = 0;
    if (!in->ReadVarintSizeAsInt(&size) || size > in->BytesUntilLimit()) return false;
    const CodedInputStream::Limit outer = in->PushLimit(size);
    if (!count_messages(in, field->message_type(), depth + 1, left) || in->BytesUntilLimit() != 0) return false;
    in->PopLimit(outer);
  }
  return in->ConsumedEntireMessage();
}

}  // namespace

void silence_protobuf() {
  static const bool done = [] {
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  (void)done;
}

void encode_prefix(const FramePrefix& prefix, std::span<std::byte, kPrefixBytes> out) {
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  store_le(out.data() + 4, prefix.header_bytes);
  store_le(out.data() + 8, prefix.payload_bytes);
  store_le(out.data() + 12, std::uint32_t{0});
}

Result<FramePrefix> decode_prefix(std::span<const std::byte, kPrefixBytes> bytes, const FrameLimits& limits,
                                  PrefixFault* fault) {
  const auto failed = [fault](PrefixFault which, Code code, std::string message) {
    if (fault != nullptr) *fault = which;
    return Error{code, std::move(message)};
  };
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return failed(PrefixFault::kNotAFrame, Code::kDataLoss, "what came is no frame of version 1");
  }
  const FramePrefix prefix{load_le<std::uint32_t>(bytes.data() + 4), load_le<std::uint32_t>(bytes.data() + 8)};
  if (load_le<std::uint32_t>(bytes.data() + 12) != 0 || prefix.header_bytes == 0) {
    return failed(PrefixFault::kNotAFrame, Code::kDataLoss, "a frame's prefix is malformed");
  }
  if (prefix.header_bytes > limits.header_bytes_max) {
    return failed(PrefixFault::kOversizeHeader, Code::kResourceExhausted,
                  "a frame's header of " + std::to_string(prefix.header_bytes) + " bytes; at most " +
                      std::to_string(limits.header_bytes_max) + " are taken");
  }
  if (prefix.payload_bytes > limits.payload_bytes_max) {
    return failed(PrefixFault::kOversizePayload, Code::kResourceExhausted,
                  "a frame's payload of " + std::to_string(prefix.payload_bytes) + " bytes; at most " +
                      std::to_string(limits.payload_bytes_max) + " are taken");
  }
  return prefix;
}

Result<v1::Envelope> parse_header(ByteSpan bytes) {
  silence_protobuf();
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());  // NOLINT: protobuf's type for bytes
  const int size = static_cast<int>(bytes.size());
  {
    CodedInputStream in(data, size);
    in.SetRecursionLimit(kNestingMax);
    const CodedInputStream::Limit whole = in.PushLimit(size);
    std::size_t left = kMessagesFree + bytes.size() / kBytesForEachMessage;
    if (!count_messages(&in, v1::Envelope::descriptor(), 0, &left)) return malformed("is no envelope, or too complex");
    in.PopLimit(whole);
  }
  CodedInputStream in(data, size);
  in.SetRecursionLimit(kNestingMax);
  v1::Envelope header;
  if (!header.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage()) return malformed("does not parse");
  if (header.body_case() == v1::Envelope::BODY_NOT_SET) return malformed("holds no message that is known here");
  return header;
}

Result<Buffer> encode_head(const v1::Envelope& header, std::size_t payload_bytes, const FrameLimits& limits) {
  silence_protobuf();
  const std::size_t header_bytes = header.ByteSizeLong();
  if (header_bytes == 0 || header_bytes > limits.header_bytes_max) {
    return Error{Code::kInvalidArgument, "a header of " + std::to_string(header_bytes) + " bytes: expected 1 to " +
                                             std::to_string(limits.header_bytes_max)};
  }
  if (payload_bytes > limits.payload_bytes_max) {
    return Error{Code::kInvalidArgument, "a payload of " + std::to_string(payload_bytes) + " bytes: expected at most " +
                                             std::to_string(limits.payload_bytes_max)};
  }
  Buffer head(kPrefixBytes + header_bytes);
  const FramePrefix prefix{static_cast<std::uint32_t>(header_bytes), static_cast<std::uint32_t>(payload_bytes)};
  encode_prefix(prefix, std::span<std::byte, kPrefixBytes>(head.data(), kPrefixBytes));
  if (!header.SerializeToArray(head.data() + kPrefixBytes, static_cast<int>(header_bytes))) {
    return Error{Code::kInternal, "the header cannot be written"};
  }
  return head;
}

}  // namespace fluvial::wire
