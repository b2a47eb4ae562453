#include "cli/admin_client.h"

#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <algorithm>
#include <boost/json/serialize.hpp>

#include "core/net/http_text.h"

namespace fluvial::cli {
namespace {

constexpr Duration kRequestDeadline = std::chrono::seconds(60);
constexpr std::size_t kUnderWayMax = 64;  // requests on one connection without an answer
// A run's start reads, digests, writes and fsyncs a whole model, of 2^40 bytes at most.
constexpr Duration kStartDeadline = std::chrono::hours(1);

Code code_from_name(std::string_view name) {
  for (int code = static_cast<int>(Code::kInvalidArgument); code <= static_cast<int>(Code::kConflict); ++code) {
    if (code_name(static_cast<Code>(code)) == name) return static_cast<Code>(code);
  }
  return Code::kInternal;
}

Error error_of(const net::HttpReply& reply) {
  const auto body = parse_json(reply.body, "the coordinator's answer");
  if (body.ok() && member(*body, "message").is_string()) {
    return {code_from_name(text_member(*body, "code")), text_member(*body, "message")};
  }
  return {Code::kInternal, fmt::format("the coordinator answered with HTTP status {}", reply.status)};
}

// Of TLS, in OpenSSL's words: whoever listens speaks something else.
bool is_of_another_port(const std::string& why) {
  return why.find("no application protocol") != std::string::npos ||
         why.find("wrong version number") != std::string::npos;
}

bool is_success(const net::HttpReply& reply) { return reply.status >= 200 && reply.status < 300; }

}  // namespace

Result<json::value> AdminClient::get(std::string_view target) const { return request("GET", target, ""); }

Result<json::value> AdminClient::post(std::string_view target, const json::value& body) const {
  return request("POST", target, json::serialize(body));
}

Result<net::HttpReply> AdminClient::exchange(std::string_view method, std::string_view target,
                                             std::string_view body) const {
  if (!place_.ok()) return place_.error();
  const Duration deadline = method == "POST" && target == "/v1/runs" ? kStartDeadline : kRequestDeadline;
  auto reply = net::http_request(place_->address, method, target, body, deadline);
  if (!reply.ok()) return unreachable(reply.error());
  if (!is_success(*reply)) return error_of(*reply);
  return reply;
}

Status AdminClient::ask_all(const NextRequest& next,
                            const std::function<Status(const std::string& body)>& answered) const {
  if (!place_.ok()) return place_.error();
  const auto pipe = net::HttpPipe::open(place_->address, kRequestDeadline);
  if (!pipe.ok()) return unreachable(pipe.error());
  const auto answer = [&]() -> Status {
    const Result<net::HttpReply> reply = (*pipe)->receive();
    if (!reply.ok()) return unreachable(reply.error());
    return is_success(*reply) ? answered(reply->body) : Status(error_of(*reply));
  };
  std::size_t under_way = 0;
  for (bool more = true; more || under_way > 0;) {
    if (!more || under_way == kUnderWayMax) {
      FLUVIAL_TRY(answer());
      --under_way;
      continue;
    }
    FLUVIAL_ASSIGN(const std::optional<Request> request, next());
    more = request.has_value();
    if (!more) continue;
    const Status sent = (*pipe)->send(request->method, request->target, request->body);
    ++under_way;
    if (sent.ok()) continue;
    // A server that refuses may close before it has read the rest: then the refusal is there to be read.
    Status heard;
    while (heard.ok() && under_way-- > 0) heard = answer();
    return heard.ok() ? Status(unreachable(sent.error())) : heard;
  }
  return {};
}

Result<json::value> AdminClient::request(std::string_view method, std::string_view target,
                                         std::string_view body) const {
  FLUVIAL_ASSIGN(const net::HttpReply reply, exchange(method, target, body));
  return parse_json(reply.body.empty() ? "{}" : reply.body, "the coordinator's answer");
}

Status AdminClient::watch(std::string_view target, const std::function<bool(const json::value&)>& on_event) const {
  if (!place_.ok()) return place_.error();
  Status bad;
  const auto reply = net::http_get_lines(place_->address, target, [&](std::string_view line) {
    const auto event = parse_json(line, "an event of the coordinator");
    if (!event.ok()) bad = event.error();
    return event.ok() && on_event(*event);
  });
  if (!reply.ok()) return unreachable(reply.error());
  if (!is_success(*reply)) return error_of(*reply);
  return bad;
}

Result<std::uint64_t> AdminClient::latest_run() const {
  FLUVIAL_ASSIGN(const json::value runs, get("/v1/runs"));
  std::uint64_t latest = 0;
  for (const json::value& run : array_member(runs, "runs")) latest = std::max(latest, count_member(run, "id"));
  if (latest == 0) return Error{Code::kNotFound, "there are no runs"};
  return latest;
}

Error AdminClient::unreachable(const Error& cause) const {
  if (place_->is_remote() && is_of_another_port(cause.message)) {
    return {cause.code, fmt::format("{}: this is not the admin port: the setting admin_listen names it", place_->text)};
  }
  if (cause.code != Code::kUnavailable && cause.code != Code::kNotFound) return cause;
  if (place_->is_remote()) {
    return {Code::kUnavailable,
            fmt::format("no coordinator answers at {} ({}); is it running, with the setting admin_listen on this port, "
                        "and does a firewall let you through?",
                        place_->text, cause.message)};
  }
  return {Code::kUnavailable,
          fmt::format("no coordinator answers at {} ({}); is it running? --admin-socket or FLUVIAL_ADMIN_SOCKET says "
                      "where its socket is",
                      place_->text, cause.message)};
}

std::string AdminOptions::place(const config::Environment& environment) const {
  const auto is_typed = [&](const std::string& value, const std::string& usual, const char* variable) {
    return value != usual && environment(variable) != value;
  };
  const std::string in_folder = data_dir + "/admin.sock";
  if (is_typed(admin, "", "FLUVIAL_ADMIN")) return admin;
  if (is_typed(admin_socket, "", "FLUVIAL_ADMIN_SOCKET")) return admin_socket;
  if (is_typed(data_dir, AdminOptions().data_dir, "FLUVIAL_DATA_DIR")) return in_folder;
  if (!admin.empty()) return admin;
  return admin_socket.empty() ? in_folder : admin_socket;
}

AdminClient AdminOptions::client() const {
  const config::Environment environment = config::process_environment();
  const std::string where = place(environment);
  if (!is_network_place(where)) return AdminClient(where);
  const Result<std::string> folder = find_identity(identity, environment);
  if (!folder.ok()) return AdminClient(Result<AdminPlace>(folder.error()));
  return AdminClient(operator_place(where, *folder, SystemClock().wall_now()));
}

void add_admin_options(CLI::App& app, AdminOptions& options) {
  app.add_option("--admin", options.admin,
                 "the coordinator's admin API: https://HOST:PORT, for operators with a certificate, or a Unix socket")
      ->type_name("URL")
      ->envname("FLUVIAL_ADMIN");
  app.add_option("--identity", options.identity,
                 "with https: the folder of the operator's key and certificate (default: the only one in "
                 "~/.config/fluvial)")
      ->type_name("DIR")
      ->envname("FLUVIAL_IDENTITY");
  add_socket_options(app, options, "the coordinator's data folder");
  // Not an option's check: CLI11 makes those for what a variable says in every command, also where it is not used.
  app.parse_complete_callback([&options] {
    const std::string where = options.place(config::process_environment());
    if (where != options.admin || check_admin_place(where).ok()) return;
    constexpr const char* kExpected = "https://HOST:PORT (the coordinator's admin_listen), or a socket's path";
    throw CLI::ValidationError("--admin", fmt::format("\"{}\": expected {}", where, kExpected));
  });
}

void add_socket_options(CLI::App& app, AdminOptions& options, const std::string& folder_help) {
  app.add_option("--admin-socket", options.admin_socket,
                 "the coordinator's Unix socket (default: admin.sock in the data folder)")
      ->type_name("PATH")
      ->envname("FLUVIAL_ADMIN_SOCKET");
  app.add_option("--data-dir", options.data_dir, folder_help)
      ->type_name("PATH")
      ->envname("FLUVIAL_DATA_DIR")
      ->capture_default_str();
}

void add_json_flag(CLI::App& app, AdminOptions& options) {
  app.add_flag("--json", options.json, "print the coordinator's answer as JSON");
}

Result<std::string> get_page(std::uint16_t metrics_port, const std::string& path) {
  const auto reply =
      net::http_request(net::TcpAddress{"127.0.0.1", metrics_port}, "GET", path, "", std::chrono::seconds(10));
  if (!reply.ok()) return reply.error();
  if (!is_success(*reply)) return error_of(*reply);
  return reply->body;
}

Result<json::value> get_status(std::uint16_t metrics_port) {
  FLUVIAL_ASSIGN(const std::string body, get_page(metrics_port, "/status"));
  return parse_json(body, "the status");
}

std::string url_encoded(std::string_view text) { return net::percent_encoded(text); }

}  // namespace fluvial::cli
