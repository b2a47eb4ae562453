// The admin API as a page in this machine's browser, for as long as this lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/operator_identity.h"
#include "cli/work_folder.h"
#include "core/net/http_forward.h"

namespace fluvial::cli {

struct ConsoleOptions {
  std::uint16_t port = 0;  // 0: a free one
  bool read_only = false;
  bool open = true;  // the browser
};

class Console {
 public:
  // Serves from here on, on a thread of its own, which inherits the caller's signal mask.
  static Result<Console> open(const AdminPlace& place, const ConsoleOptions& options);

  const std::string& address() const { return address_; }  // the one-time one
  Result<bool> open_browser();                             // at that address; false: there is no desktop to do so

 private:
  Console(std::string address, std::unique_ptr<net::HttpForwarder> forwarder)
      : address_(std::move(address)), forwarder_(std::move(forwarder)) {}
  std::string address_;
  std::unique_ptr<net::HttpForwarder> forwarder_;
  std::unique_ptr<WorkFolder> folder_;  // of the file that the browser is sent to
};

// The address in the browser, and for people to read.
void show_console(const Io& io, Console& console, const ConsoleOptions& options);

}  // namespace fluvial::cli
