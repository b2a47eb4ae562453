// fluvial console: a page about the federation, in a browser on this machine.
#include "cli/console.h"

#include <fmt/format.h>
#include <signal.h>

#include <boost/json/serialize.hpp>
#include <memory>

#include "cli/admin_client.h"
#include "cli/console_gate.h"
#include "cli/desktop.h"
#include "cli/local_run.h"
#include "core/identity/secret.h"

namespace fluvial::cli {
namespace {

// A page has six connections to a host at most; a few pages, and some that come and go.
net::HttpSettings bounds() {
  net::HttpSettings settings;
  settings.header_bytes_max = 16 * 1024;
  settings.body_bytes_max = 1024;
  settings.connections_max = 32;
  settings.stop_deadline = std::chrono::milliseconds(200);
  return settings;
}

std::string random_text() { return to_hex(identity::Secret::random().bytes()); }

struct ConsoleCommand : AdminOptions, ConsoleOptions {
  bool no_open = false;
};

// The signals that end it, blocked in this thread and in those that it starts.
sigset_t block_ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int run_console(const Io& io, ConsoleCommand options) {
  options.open = !options.no_open && !options.json;
  const AdminClient client = options.client();
  const auto self = client.get("/v1/self");
  const bool is_older = !self.ok() && self.error().code == Code::kNotFound;  // 0.2: it refuses changes by itself
  if (!self.ok() && !is_older) return fail(io, "console", self.error());
  options.read_only = options.read_only || (self.ok() && text_member(*self, "access") != "full");
  const sigset_t signals = block_ending_signals();
  auto console = Console::open(*client.where(), options);
  if (!console.ok()) return fail(io, "console", console.error());
  if (options.json) {
    io.print(json::serialize(json::object{{"address", console->address()}, {"read_only", options.read_only}}) + "\n");
  } else {
    show_console(io, *console, options);
    if (options.read_only) io.print("It shows no buttons that change something: you look, and change nothing.\n");
    io.print("It lets one browser in, once. Ctrl-C ends it.\n");
  }
  int signal = 0;
  ::sigwait(&signals, &signal);
  return kDone;
}

}  // namespace

Result<Console> Console::open(const AdminPlace& place, const ConsoleOptions& options) {
  FLUVIAL_ASSIGN(auto forwarder, net::HttpForwarder::open({"127.0.0.1", options.port}, place.address, bounds()));
  const ConsoleAccess access{forwarder->port(), random_text(), random_text(), options.read_only};
  auto gate = std::make_shared<ConsoleGate>(access);
  forwarder->start([gate](const net::HttpRequest& request) { return (*gate)(request); });
  return Console(console_address(access), std::move(forwarder));
}

Result<bool> Console::open_browser() {
  if (!has_desktop()) return false;
  if (!folder_) {
    FLUVIAL_ASSIGN(WorkFolder folder, WorkFolder::open("", false, "console"));
    folder_ = std::make_unique<WorkFolder>(std::move(folder));
  }
  // The address itself would be an argument of the browser's, which every user of this machine may read.
  const std::string page = folder_->file("open.html");
  FLUVIAL_TRY(write_text_file(
      page, fmt::format("<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={}\">\n", address_)));
  return open_on_desktop(page);
}

void show_console(const Io& io, Console& console, const ConsoleOptions& options) {
  const Result<bool> tried = options.open ? console.open_browser() : false;
  const bool opened = tried.ok() && *tried;
  io.print(fmt::format("{}\n  {}\n", opened ? "the console opens in your browser:" : "open the console in a browser:",
                       io.terminal().bold(console.address())));
}

void add_console_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<ConsoleCommand>();
  CLI::App* console = app.add_subcommand("console", "the federation as a page in this machine's browser");
  console->add_option("--port", options->port, "on 127.0.0.1 (default: a free one)")
      ->type_name("N")
      ->check(whole_number(1, 65'535));
  console->add_flag("--read-only", options->read_only, "no pause, resume or stop of runs");
  console->add_flag("--no-open", options->no_open, "print the address and open no browser (--json opens none either)");
  add_admin_options(*console, *options);
  console->add_flag("--json", options->json, "print the address as JSON");
  console->footer(
      "It carries the admin API to a port of 127.0.0.1 until Ctrl-C. The address works once, for the browser that "
      "opens\n"
      "it first (docs/operations/console.md). From another machine an operator's certificate opens it with --admin.\n"
      "Example:\n  fluvial console --data-dir /var/lib/fluvial\n  fluvial console --admin https://fl.example.org:7402");
  console->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return run_console(commands.io, *options); }; });
}

}  // namespace fluvial::cli
