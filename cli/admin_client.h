// The coordinator's admin API, over its Unix socket or the network, as values. Blocking.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/json.h"
#include "cli/operator_identity.h"
#include "core/base/clock.h"
#include "core/net/http.h"

namespace fluvial::cli {

class AdminClient {
 public:
  explicit AdminClient(const std::string& socket) : place_(AdminPlace{net::UnixAddress{socket}, socket, {}}) {}
  explicit AdminClient(Result<AdminPlace> place) : place_(std::move(place)) {}

  // Errors are the coordinator's own, or kUnavailable with what to do about it.
  Result<json::value> get(std::string_view target) const;
  Result<json::value> post(std::string_view target, const json::value& body = json::object()) const;
  // Events of /v1/rounds/watch until the run ends or `on_event` returns false.
  Status watch(std::string_view target, const std::function<bool(const json::value& event)>& on_event) const;

  Result<std::uint64_t> latest_run() const;  // kNotFound when there are none

  // A path, or https://host:port; empty: there is none, and every request says why.
  std::string place() const { return place_.ok() ? place_->text : std::string(); }
  const Result<AdminPlace>& where() const { return place_; }
  bool is_remote() const { return place_.ok() && place_->is_remote(); }
  // Requests on one connection, some of them on their way before the first is answered. `next` gives one after the
  // other, and then nothing; `answered` takes the bodies. Ends with the first that is refused, or that it fails.
  struct Request {
    std::string method;
    std::string target;
    std::string body;
  };
  using NextRequest = std::function<Result<std::optional<Request>>()>;
  Status ask_all(const NextRequest& next, const std::function<Status(const std::string& body)>& answered) const;

 private:
  Result<net::HttpReply> exchange(std::string_view method, std::string_view target, std::string_view body) const;
  Result<json::value> request(std::string_view method, std::string_view target, std::string_view body) const;
  Error unreachable(const Error& cause) const;
  Result<AdminPlace> place_;
};

// --admin, --identity, --admin-socket and --data-dir, with their environment variables.
struct AdminOptions {
  std::string admin;     // https://host:port, or a socket's path
  std::string identity;  // an operator's folder, for the first
  std::string admin_socket;
  std::string data_dir = "/var/lib/fluvial";
  bool json = false;

  // Of what was typed the first in this order, else of what the environment says: a variable that was set for another
  // coordinator never stands above a typed folder.
  std::string place(const config::Environment& environment) const;
  AdminClient client() const;
};
void add_admin_options(CLI::App& app, AdminOptions& options);
void add_socket_options(CLI::App& app, AdminOptions& options, const std::string& folder_help);  // the last two
void add_json_flag(CLI::App& app, AdminOptions& options);

// What any role's metrics port serves at a path (http://127.0.0.1:PORT/metrics), and its JSON document /status.
Result<std::string> get_page(std::uint16_t metrics_port, const std::string& path);
Result<json::value> get_status(std::uint16_t metrics_port);

// Percent-encodes what is not unreserved.
std::string url_encoded(std::string_view text);

}  // namespace fluvial::cli
