// The coordinator's admin API over its Unix socket, as values. Blocking.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cli/json.h"
#include "core/base/clock.h"
#include "core/net/http.h"

namespace fluvial::cli {

class AdminClient {
 public:
  explicit AdminClient(std::string socket) : socket_(std::move(socket)) {}

  // Errors are the coordinator's own, or kUnavailable with what to do about it.
  Result<json::value> get(std::string_view target) const;
  Result<json::value> post(std::string_view target, const json::value& body = json::object()) const;
  // Events of /v1/rounds/watch until the run ends or `on_event` returns false.
  Status watch(std::string_view target, const std::function<bool(const json::value& event)>& on_event) const;

  Result<std::uint64_t> latest_run() const;  // kNotFound when there are none

  const std::string& socket() const { return socket_; }

 private:
  Result<json::value> request(std::string_view method, std::string_view target, std::string_view body) const;
  Error unreachable(const Error& cause) const;
  std::string socket_;
};

// --admin-socket and --data-dir, with their environment variables.
struct AdminOptions {
  std::string admin_socket;
  std::string data_dir = "/var/lib/fluvial";
  bool json = false;

  AdminClient client() const { return AdminClient(admin_socket.empty() ? data_dir + "/admin.sock" : admin_socket); }
};
void add_admin_options(CLI::App& app, AdminOptions& options);
void add_json_flag(CLI::App& app, AdminOptions& options);

// What any role's metrics port serves at a path (http://127.0.0.1:PORT/metrics), and its JSON document /status.
Result<std::string> get_page(std::uint16_t metrics_port, const std::string& path);
Result<json::value> get_status(std::uint16_t metrics_port);

// Percent-encodes what is not unreserved.
std::string url_encoded(std::string_view text);

}  // namespace fluvial::cli
