// fluvial enroll, and --enroll of the members' processes.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/enroll.h"
#include "cli/proxy.h"
#include "cli/token_file.h"
#include "core/config/settings.h"

namespace fluvial::cli {
namespace {

constexpr const char* kWaitVariable = "FLUVIAL_ENROLL_WAIT";

CLI::Validator a_duration() {
  return checked("a duration such as 30s, 10m or 2h", [](const std::string& text) -> Status {
    const auto wait = config::parse_milliseconds(text);
    return wait.ok() ? Status() : Status(wait.error());
  });
}

Duration duration_of(const std::string& text) {  // checked before
  return std::chrono::milliseconds(config::parse_milliseconds(text).value());
}

struct EnrollOptions : EnrollRequest {
  std::string token_file;
  std::string wait_text = "0s";
};

Result<GivenToken> token_text(const EnrollOptions& options, const config::Environment& environment) {
  if (!options.token.empty()) return GivenToken{.text = options.token, .warning = ""};
  if (!options.token_file.empty() && options.token_file != "-") return read_token_file(options.token_file);
  if (options.token_file.empty()) {
    FLUVIAL_ASSIGN(GivenToken given, token_from(environment));
    if (!given.text.empty()) return given;
  }
  if (::isatty(STDIN_FILENO) == 1) std::cerr << "token: " << std::flush;
  std::string line;
  std::getline(std::cin, line);
  if (line.find_first_not_of(" \t\r\n") != std::string::npos) return GivenToken{.text = line, .warning = ""};
  return Error{
      Code::kInvalidArgument,
      "no token: give --token-file FILE, set FLUVIAL_TOKEN_FILE or FLUVIAL_TOKEN, or write it to standard input"};
}

int report_operator(const Io& io, const Enrolled& enrolled) {
  io.print(
      fmt::format("enrolled {}as {}: key and certificate are in {}\n"
                  "next: fluvial status --admin https://HOST:PORT, where the coordinator's setting admin_listen "
                  "says\n",
                  enrolled.already ? "already " : "", identity::describe(enrolled.member), enrolled.config));
  return kDone;
}

int report(const Io& io, const Enrolled& enrolled) {
  if (enrolled.member.role == Role::kOperator) return report_operator(io, enrolled);
  const char* command = enrolled.member.role == Role::kSite ? "edge" : "aggregator";
  const std::string member = identity::describe(enrolled.member);
  if (enrolled.already) {
    io.print(fmt::format("enrolled already as {}: nothing to do\nnext: fluvial {} --config {}\n", member, command,
                         enrolled.config));
    return kDone;
  }
  io.print(fmt::format("enrolled as {}{}\n{} {}\nnext: fluvial {} --config {}\n", member,
                       enrolled.region.empty() ? "" : " in " + enrolled.region, enrolled.config_kept ? "kept" : "wrote",
                       enrolled.config, command, enrolled.config));
  if (enrolled.again) {
    io.print(
        "A process that runs with this folder already has the certificate of before, which is no longer let in: "
        "restart it.\n");
  }
  return kDone;
}

int run_enroll(const Io& io, EnrollOptions options, const config::Environment& environment) {
  const auto token = token_text(options, environment);
  if (!token.ok()) return fail(io, "enroll", token.error(), kUsage);
  if (!token->warning.empty()) io.note("fluvial enroll: " + token->warning + "\n");
  options.token = token->text;
  options.wait = duration_of(options.wait_text);
  const ProxyChoice way_out = choose_proxy(options.proxy, "", environment);
  options.proxy = way_out.url;
  options.no_proxy = way_out.no_proxy;
  options.progress = [&io](const std::string& line) { io.note("fluvial enroll: " + line + "\n"); };
  const auto enrolled = enroll(options);
  if (enrolled.ok()) return report(io, *enrolled);
  return fail(io, "enroll", enrolled.error(), enrolled.error().code == Code::kInvalidArgument ? kUsage : kFailed);
}

}  // namespace

void add_enroll_first_options(CLI::App& app, EnrollFirst& options) {
  app.add_flag(
      "--enroll", options.wanted,
      "enrol first where the data folder holds no member yet; the token is in --token-file, FLUVIAL_TOKEN_FILE "
      "or FLUVIAL_TOKEN");
  app.add_option("--token-file", options.token_file, "with --enroll: a file that holds the token")->type_name("FILE");
  app.add_option("--enroll-wait", options.wait,
                 "with --enroll: how long to wait for a coordinator that does not answer")
      ->type_name("TIME")
      ->envname(kWaitVariable)
      ->capture_default_str()
      ->check(a_duration());
}

Result<std::string> enroll_first(const EnrollFirst& options, Role role, const config::Environment& environment,
                                 const std::function<std::string(const std::string& key)>& given,
                                 const telemetry::Logger& log) {
  EnrollRequest request{.token = "",
                        .role = role,
                        .coordinator = "",
                        .data_dir = given("data_dir"),
                        .advertise = given("advertise"),
                        .listen = given("listen"),
                        .proxy = "",
                        .no_proxy = "",
                        .wait = duration_of(options.wait),
                        .progress = [&](const std::string& line) { log.info("not enrolled yet", {{"reason", line}}); }};
  const ProxyChoice way_out = choose_proxy(given("proxy"), given("no_proxy"), environment);
  request.proxy = way_out.url;
  request.no_proxy = way_out.no_proxy;
  if (request.data_dir.empty()) {
    return Error{Code::kInvalidArgument, "data_dir is missing: with --enroll give --data-dir or FLUVIAL_DATA_DIR"};
  }
  FLUVIAL_ASSIGN(const std::optional<Enrolled> before, enrolled_before(request.data_dir));
  if (before && before->member.role != role) {
    return Error{Code::kAlreadyExists, fmt::format("{} is enrolled as {}: expected the role {}", request.data_dir,
                                                   identity::describe(before->member), role_name(role))};
  }
  if (before) return before->config;  // and the token may be gone by now
  FLUVIAL_ASSIGN(const GivenToken token,
                 options.token_file.empty() ? token_from(environment) : read_token_file(options.token_file));
  if (token.text.empty()) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{} is not enrolled, and there is no token: give --token-file FILE, or set "
                             "FLUVIAL_TOKEN_FILE or FLUVIAL_TOKEN",
                             request.data_dir)};
  }
  if (!token.warning.empty()) {
    log.warn("the token's file can be read by others; it is used anyway", {{"reason", token.warning}});
  }
  request.token = token.text;
  FLUVIAL_ASSIGN(const Enrolled enrolled, enroll(request));
  log.info("enrolled", {{"member", enrolled.member.name},
                        {"member_role", role_name(enrolled.member.role)},
                        {"region", enrolled.region}});
  return enrolled.config;
}

void add_enroll_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<EnrollOptions>();
  CLI::App* enrolled = app.add_subcommand("enroll", "become a member of a federation with a one-time token");
  CLI::Option* token =
      enrolled
          ->add_option("--token", options->token, "the token's text (others on this machine may see it: prefer a file)")
          ->type_name("TEXT");
  enrolled
      ->add_option("--token-file", options->token_file,
                   "a file that holds it, or - for standard input (default: FLUVIAL_TOKEN_FILE, FLUVIAL_TOKEN, "
                   "standard input)")
      ->type_name("FILE")
      ->excludes(token);
  const auto is_address = checked("host:port", [](const std::string& text) -> Status {
    const auto address = config::parse_host_port(text);
    return address.ok() ? Status() : Status(address.error());
  });
  enrolled->add_option("--coordinator", options->coordinator, "its enrolment port, when it is not the one in the token")
      ->type_name("HOST:PORT")
      ->check(is_address);
  enrolled
      ->add_option("--data-dir", options->data_dir, "a member's folder: key, certificate and configuration go there")
      ->type_name("PATH")
      ->envname("FLUVIAL_DATA_DIR");
  enrolled
      ->add_option("--identity", options->identity,
                   "with an operator's token: where key and certificate go (default: ~/.config/fluvial/NAME)")
      ->type_name("DIR")
      ->envname("FLUVIAL_IDENTITY");
  enrolled
      ->add_option("--advertise", options->advertise,
                   "of an aggregator: where its children reach it; it listens on the same port (default: this "
                   "machine's name, port 7410)")
      ->type_name("HOST:PORT")
      ->check(is_address);
  enrolled
      ->add_option("--listen", options->listen,
                   "of an aggregator: where it listens, if not on every address and --advertise's port")
      ->type_name("HOST:PORT")
      ->check(is_address);
  enrolled
      ->add_option("--proxy", options->proxy,
                   "an HTTP proxy on the way to the coordinator, or off (default: what https_proxy and no_proxy say)")
      ->type_name("URL")
      ->envname("FLUVIAL_PROXY");
  enrolled->add_option("--wait", options->wait_text, "how long to wait for a coordinator that does not answer")
      ->type_name("TIME")
      ->envname(kWaitVariable)
      ->capture_default_str()
      ->check(a_duration());
  enrolled->footer(
      "The private key is made here and never leaves this machine. The coordinator is known by the pin in the token.\n"
      "A folder that is enrolled already is left as it is; an enrolment that was cut short goes on with the same "
      "token.\n"
      "Example:\n  fluvial enroll --token-file token.txt --data-dir /var/lib/fluvial\n"
      "  fluvial edge --config /var/lib/fluvial/edge.toml\n"
      "or both in one:\n  fluvial edge --enroll --token-file token.txt --data-dir /var/lib/fluvial\n"
      "A person with an operator's token:\n  fluvial enroll --token-file token.txt\n"
      "  fluvial status --admin https://fl.example.org:7402");
  enrolled->callback([&commands, options] {
    commands.chosen = [&commands, options] { return run_enroll(commands.io, *options, commands.environment); };
  });
}

}  // namespace fluvial::cli
