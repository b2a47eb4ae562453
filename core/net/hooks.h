// What core/net tells whoever counts and logs. All of it may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::net {

// Why a connection was refused or cut: values of a metric's label (core/telemetry/subjects_node.cc).
namespace reason {
inline constexpr std::string_view kPlainHttp = "plain_http";
inline constexpr std::string_view kNotTls = "not_tls";
inline constexpr std::string_view kOldTls = "old_tls";
inline constexpr std::string_view kNoCertificate = "no_certificate";
inline constexpr std::string_view kBadCertificate = "bad_certificate";
inline constexpr std::string_view kWrongAlpn = "wrong_alpn";
inline constexpr std::string_view kHandshakeFailed = "handshake_failed";
inline constexpr std::string_view kHandshakeSlow = "handshake_slow";
inline constexpr std::string_view kClosedEarly = "closed_early";  // before the handshake was finished
inline constexpr std::string_view kNotAdmitted = "not_admitted";  // a member, but denied or of the wrong role
inline constexpr std::string_view kTooManySessions = "too_many_sessions";
inline constexpr std::string_view kTooManyHandshakes = "too_many_handshakes";
inline constexpr std::string_view kGaveWay = "gave_way";  // a stranger that was still, for a newcomer
inline constexpr std::string_view kTooManyOfMember = "too_many_of_member";
inline constexpr std::string_view kKeyUpdates = "key_updates";            // more than its data calls for
inline constexpr std::string_view kBeforeAdmission = "before_admission";  // too much, or a payload
inline constexpr std::string_view kDamaged = "damaged";                   // bytes that were changed on their way
inline constexpr std::string_view kNotAFrame = "not_a_frame";
inline constexpr std::string_view kOversizeHeader = "oversize_header";
inline constexpr std::string_view kOversizePayload = "oversize_payload";
inline constexpr std::string_view kBadHeader = "bad_header";
inline constexpr std::string_view kSlow = "slow";      // a frame below the minimum rate
inline constexpr std::string_view kSilent = "silent";  // no heartbeat
inline constexpr std::string_view kStuck = "stuck";    // takes no bytes

// Of connections that did not become a session; and of frames that ended one.
inline constexpr std::string_view kHandshake[] = {
    kPlainHttp,       kNotTls,        kOldTls,      kNoCertificate,   kBadCertificate,    kWrongAlpn,
    kHandshakeFailed, kHandshakeSlow, kClosedEarly, kTooManySessions, kTooManyHandshakes, kGaveWay};
inline constexpr std::string_view kFrame[] = {kDamaged,   kNotAFrame, kOversizeHeader, kOversizePayload,
                                              kBadHeader, kSlow,      kKeyUpdates,     kBeforeAdmission};
}  // namespace reason

// Of one session. Wire bytes include TLS, without TCP and IP.
struct Counters {
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t frames_in = 0;
  std::uint64_t frames_out = 0;
  std::uint64_t payload_bytes_in = 0;
  std::uint64_t payload_bytes_out = 0;

  Counters operator-(const Counters& before) const {
    return {bytes_in - before.bytes_in,
            bytes_out - before.bytes_out,
            frames_in - before.frames_in,
            frames_out - before.frames_out,
            payload_bytes_in - before.payload_bytes_in,
            payload_bytes_out - before.payload_bytes_out};
  }
};

// What a session has moved since it was told last.
struct Traffic {
  Counters more;
  std::int64_t outbox_bytes_more = 0;  // waiting to be sent; fewer: negative
};

class NetHooks {
 public:
  virtual ~NetHooks() = default;
  virtual void refused(std::string_view reason, const std::string& remote, const std::string& detail) {
    (void)reason, (void)remote, (void)detail;
  }
  virtual void session_opened(const std::string& remote) { (void)remote; }
  // While a session runs, every few seconds, and when it ends. `accepted`: the peer connected to us.
  virtual void session_moved(bool accepted, const Traffic& traffic) { (void)accepted, (void)traffic; }
  virtual void session_closed(const std::string& remote, const Error& why, const Counters& counters) {
    (void)remote, (void)why, (void)counters;
  }
  virtual void answer_lost(const std::string& remote, const Error& why) { (void)remote, (void)why; }  // over HTTP
  virtual void accept_failed(const std::string& detail) { (void)detail; }  // such as: too many open files
  virtual void handler_failed(const std::string& remote, const std::string& detail) { (void)remote, (void)detail; }
};

}  // namespace fluvial::net
