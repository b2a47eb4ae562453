#include "cli/console_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

namespace fluvial::cli {
namespace {

constexpr std::string_view kDescription = "/session";

// Takes as long however much of it is right.
bool same_secret(std::string_view given, std::string_view secret) {
  if (secret.empty() || given.size() != secret.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < secret.size(); ++i) difference |= static_cast<unsigned char>(given[i] ^ secret[i]);
  return difference == 0;
}

std::array<std::string, 2> own_hosts(std::uint16_t port) {
  return {fmt::format("127.0.0.1:{}", port), fmt::format("localhost:{}", port)};
}

bool is_own_host(std::uint16_t port, std::string_view host) {
  const auto hosts = own_hosts(port);
  return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

std::string_view cookie_of(std::string_view header, std::string_view name) {
  while (!header.empty()) {
    std::string_view pair = header.substr(0, header.find(';'));
    header.remove_prefix(std::min(header.size(), pair.size() + 1));
    pair.remove_prefix(std::min(pair.find_first_not_of(' '), pair.size()));
    const std::size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) return pair.substr(equals + 1);
  }
  return "";
}

std::vector<std::string_view> segments_of(std::string_view path) {
  std::vector<std::string_view> segments;
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    segments.push_back(path.substr(0, path.find('/')));
    path.remove_prefix(segments.back().size());
  }
  return segments;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 20 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_file_name(std::string_view text) {
  return !text.empty() && text.front() != '.' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}

bool may_read(std::string_view path) {
  const std::vector<std::string_view> at = segments_of(path);
  if (path == "/") return true;
  if (at.size() == 2 && at[0] == "console") return is_file_name(at[1]);
  if (at.size() < 2 || at[0] != "v1") return false;
  const std::string_view what = at[1];
  if (at.size() == 2) {
    return what == "status" || what == "nodes" || what == "runs" || what == "rounds" || what == "events";
  }
  if (at.size() == 3 && what == "runs") return is_number(at[2]) || at[2] == "latest";
  if (at.size() == 3 && what == "rounds") return at[2] == "open";
  return at.size() == 4 && what == "rounds" && is_number(at[2]) && at[3] == "timeline";
}

bool may_change(std::string_view path) {
  const std::vector<std::string_view> at = segments_of(path);
  return at.size() == 4 && at[0] == "v1" && at[1] == "runs" && is_number(at[2]) &&
         (at[3] == "pause" || at[3] == "resume" || at[3] == "stop");
}

ConsoleVerdict refuse(int status, std::string reason) { return {ConsoleStep::kRefuse, status, std::move(reason)}; }

// The key was given: is it ours?
ConsoleVerdict judge_key(const ConsoleAccess& access, const net::HttpRequest& request, std::string_view key) {
  if (request.method != "GET") return refuse(405, "the one-time address is opened with GET");
  if (access.key.empty()) {
    return refuse(403,
                  fmt::format("This address has been used; it works once. The browser that used it stays in: "
                              "http://127.0.0.1:{}/ there. For another browser, end fluvial console with Ctrl-C and "
                              "start it again: it gives a new address.",
                              access.port));
  }
  if (!same_secret(key, access.key)) {
    return refuse(403, "The key in this address is not the one that fluvial console gave: copy the whole address.");
  }
  return {ConsoleStep::kEnter, 200, ""};
}

ConsoleVerdict judge_change(const ConsoleAccess& access, const net::HttpRequest& request) {
  if (!may_change(request.path)) return refuse(403, "the console changes nothing but a run's state");
  if (access.read_only)
    return refuse(403,
                  "this console changes nothing: it was started with --read-only, or by somebody who may only look");
  if (request.header(kConsoleHeader) != "1") {
    return refuse(403, fmt::format("a request that changes something needs the header {}: 1", kConsoleHeader));
  }
  return {ConsoleStep::kForward, 200, ""};
}

net::HttpResponse own_page(int status, std::string text) {
  net::HttpResponse response = net::HttpResponse::text(status, std::move(text));
  response.headers = {{"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
                      {"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  return response;
}

}  // namespace

std::string console_cookie_name(std::uint16_t port) { return fmt::format("fluvial-console-{}", port); }

std::string console_address(const ConsoleAccess& access) {
  return fmt::format("http://127.0.0.1:{}/?key={}", access.port, access.key);
}

ConsoleVerdict judge(const ConsoleAccess& access, const net::HttpRequest& request) {
  const std::string host(request.header("host"));
  if (!is_own_host(access.port, host)) {
    return refuse(421, fmt::format("The Host is none of this console's: it is http://127.0.0.1:{}/", access.port));
  }
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && origin != "http://" + host) return refuse(403, "The Origin is another page's.");
  if (request.path == "/") {
    if (const auto key = request.query.find("key"); key != request.query.end()) {
      return judge_key(access, request, key->second);
    }
  }
  if (!same_secret(cookie_of(request.header("cookie"), console_cookie_name(access.port)), access.session)) {
    return refuse(401,
                  "This browser has not been let in: open the one-time address that fluvial console printed. Once that "
                  "has been used, end fluvial console with Ctrl-C and start it again: it gives a new one.");
  }
  // Cookies are not kept apart by port, so what another server of this machine serves counts as the same site.
  const std::string_view from = request.header("sec-fetch-site");
  if (from == "cross-site" || from == "same-site") return refuse(403, "Another page asks.");
  if (request.method == "POST") return judge_change(access, request);
  if (request.method != "GET") return refuse(405, "the console asks with GET and POST");
  if (request.path == kDescription) return {ConsoleStep::kDescribe, 200, ""};
  if (!may_read(request.path)) return refuse(403, "the console does not show this");
  return {ConsoleStep::kForward, 200, ""};
}

std::optional<net::HttpResponse> ConsoleGate::operator()(const net::HttpRequest& request) {
  const ConsoleVerdict verdict = judge(access_, request);
  switch (verdict.step) {
    case ConsoleStep::kForward: return std::nullopt;
    case ConsoleStep::kDescribe: {
      net::HttpResponse response = own_page(200, fmt::format("{{\"read_only\":{}}}", access_.read_only));
      response.content_type = "application/json";
      return response;
    }
    case ConsoleStep::kRefuse: return own_page(verdict.status, verdict.reason + "\n");
    case ConsoleStep::kEnter: break;
  }
  access_.key.clear();
  // Not a redirect: a browser that came here from another site's page would send no SameSite=Strict cookie along with
  // it.
  net::HttpResponse response =
      own_page(200,
               "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Fluvial</title>"
               "<meta http-equiv=\"refresh\" content=\"0;url=/\"><p><a href=\"/\">To the console</a></p></html>\n");
  response.content_type = "text/html; charset=utf-8";
  response.headers.emplace_back("Set-Cookie", fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/",
                                                          console_cookie_name(access_.port), access_.session));
  return response;
}

}  // namespace fluvial::cli
