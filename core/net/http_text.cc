#include "core/net/http_text.h"

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/plain_numbers.h"
#include "core/base/printable.h"
#include "core/net/http.h"

namespace fluvial::net {
namespace {

constexpr std::size_t kMessageBytesMax = 4096;

Result<std::string> undo_percent(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const auto byte = from_hex(text.substr(i + 1, 2));
    if (!byte.ok() || byte->size() != 1) return Error{Code::kInvalidArgument, "malformed % in the target"};
    out.push_back(static_cast<char>(byte->data()[0]));
    i += 2;
  }
  return out;
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

}  // namespace

std::string percent_encoded(std::string_view text, std::string_view kept) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos ||
                       kept.find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out;
}

Result<HttpTarget> parse_target(std::string_view target) {
  if (target.empty() || target.front() != '/') return Error{Code::kInvalidArgument, "the target must begin with /"};
  const std::size_t mark = target.find('?');
  HttpTarget out;
  FLUVIAL_ASSIGN(out.path, undo_percent(target.substr(0, mark)));
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    FLUVIAL_ASSIGN(std::string key, undo_percent(pair.substr(0, equals)));
    FLUVIAL_ASSIGN(std::string value, undo_percent(equals == std::string_view::npos ? "" : pair.substr(equals + 1)));
    out.query.insert_or_assign(std::move(key), std::move(value));
  }
  return out;
}

int http_status_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return 400;
    case Code::kUnauthenticated: return 401;
    case Code::kPermissionDenied: return 403;
    case Code::kNotFound: return 404;
    case Code::kAlreadyExists:
    case Code::kFailedPrecondition:
    case Code::kConflict:
    case Code::kStale: return 409;
    case Code::kResourceExhausted: return 429;
    case Code::kUnavailable:
    case Code::kCancelled: return 503;
    case Code::kDeadlineExceeded: return 504;
    case Code::kDataLoss:
    case Code::kInternal: break;
  }
  return 500;
}

std::string to_target(const HttpTarget& target) {
  std::string text = percent_encoded(target.path, "/");
  char before = '?';
  for (const auto& [key, value] : target.query) {
    text += before + percent_encoded(key) + "=" + percent_encoded(value);
    before = '&';
  }
  return text;
}

std::string_view HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

HttpResponse HttpResponse::text(int status, std::string body) {
  HttpResponse out;
  out.status = status;
  out.content_type = "text/plain; charset=utf-8";
  out.body = std::move(body);
  return out;
}

HttpResponse HttpResponse::json(std::string body) {
  HttpResponse out;
  out.body = plain_numbers(body);
  return out;
}

HttpResponse HttpResponse::from_error(const Error& error) {
  HttpResponse out = json(fmt::format("{{\"code\": {}, \"message\": {}}}\n", quote_json(code_name(error.code)),
                                      quote_json(printable(error.message, kMessageBytesMax))));
  out.status = http_status_of(error.code);
  return out;
}

}  // namespace fluvial::net
