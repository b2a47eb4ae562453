#include "core/identity/errors.h"

#include <openssl/err.h>

#include <string>
#include <system_error>

#include "core/base/printable.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

constexpr std::size_t kReasonBytesMax = 1'000;
constexpr int kReasonsMax = 4;  // the queue's oldest entries name the cause; the rest are callers passing it on

std::string alert_text(int alert) {
  if (alert == SSL_AD_NO_APPLICATION_PROTOCOL) return "no application protocol";
  if (alert == SSL_AD_CERTIFICATE_REQUIRED) return "certificate required";
  return SSL_alert_desc_string_long(alert);
}

std::string reason_text(unsigned long code, const char* data, int flags) {
  if (ERR_SYSTEM_ERROR(code)) return std::generic_category().message(ERR_GET_REASON(code));
  const int reason = ERR_GET_REASON(code);
  if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET) {
    return "the peer refused: " + alert_text(reason - SSL_AD_REASON_OFFSET);
  }
  const char* const known = ERR_reason_error_string(code);
  std::string text = known != nullptr ? known : "error " + std::to_string(reason);
  if ((flags & ERR_TXT_STRING) != 0 && data != nullptr && *data != '\0') text += std::string(" (") + data + ")";
  return text;
}

// The queue's reasons as one line, whatever was in it; empty when the queue is empty.
std::string drain_queue() {
  std::string all;
  const char* data = nullptr;
  int flags = 0;
  int count = 0;
  while (const unsigned long code = ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags)) {
    if (count++ >= kReasonsMax) continue;
    if (!all.empty()) all += "; ";
    all += reason_text(code, data, flags);
  }
  return printable(all, kReasonBytesMax);
}

}  // namespace

Error openssl_error(std::string_view what, Code code) {
  const std::string reasons = drain_queue();
  return {code, std::string(what) + ": " + (reasons.empty() ? "OpenSSL gives no reason" : reasons)};
}

Error handshake_error(SSL* ssl, std::string_view what) {
  const unsigned long last = ERR_peek_last_error();
  const bool cut_off = ERR_GET_LIB(last) == ERR_LIB_SSL && ERR_GET_REASON(last) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  const std::string reasons = drain_queue();
  const std::string prefix = std::string(what) + ": ";
  if (const std::string* const verdict = verdict_of(ssl)) return {Code::kUnauthenticated, prefix + *verdict};
  if (!reasons.empty() && !cut_off) return {Code::kUnauthenticated, prefix + reasons};
  return {Code::kUnavailable, prefix + "the peer closed the connection"};
}

}  // namespace fluvial::identity
