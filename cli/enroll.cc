// fluvial enroll: become a member, once.
#include "cli/enroll.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "core/config/settings.h"
#include "core/store/file_system.h"

namespace fluvial::cli {
namespace {

constexpr std::uint64_t kTokenBytesMax = 4096;

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

std::string toml_string(const std::string& text) {  // a TOML basic string
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string config_text(const EnrollRequest& request, const tree::Enrolment& enrolment, const std::string& folder) {
  const bool site = enrolment.member.role == Role::kSite;
  std::string text = fmt::format(
      "# {}. Written by fluvial enroll; every setting is explained in docs/operations/settings.md.\n"
      "data_dir = {}\ncoordinator = {}\n",
      identity::describe(enrolment.member), toml_string(folder), toml_string(enrolment.coordinator));
  if (site) return text;
  std::string advertise = request.advertise;
  if (advertise.empty()) {
    const auto listen = config::parse_host_port(request.listen);
    advertise = config::format_host_port({host_name(), listen.ok() ? listen->port : std::uint16_t{7410}});
  }
  return text + fmt::format("listen = {}\nadvertise = {}  # where its children reach it\n", toml_string(request.listen),
                            toml_string(advertise));
}

Status refuse_second(const std::string& folder) {
  const auto credentials = identity::load_credentials(folder + "/identity");
  if (!credentials.ok()) {
    return credentials.error().code == Code::kNotFound ? Status() : Status(credentials.error());
  }
  const auto member = identity::identity_of(credentials->chain.front());
  return Error{Code::kAlreadyExists, fmt::format("{} is enrolled already{}; remove {}/identity to enrol anew", folder,
                                                 member.ok() ? " as " + identity::describe(*member) : "", folder)};
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

struct Options : EnrollRequest {
  std::string token_file;
};

Result<std::string> token_text(const Options& options) {
  if (!options.token.empty()) return trimmed(options.token);
  if (!options.token_file.empty() && options.token_file != "-") {
    store::PosixFileSystem files;
    FLUVIAL_ASSIGN(const Buffer content, store::read_file(files, options.token_file, kTokenBytesMax));
    return trimmed(std::string(as_text(content.span())));
  }
  if (::isatty(STDIN_FILENO) == 1) std::cerr << "token: " << std::flush;
  std::string line;
  std::getline(std::cin, line);
  if (trimmed(line).empty())
    return Error{Code::kInvalidArgument, "no token: give --token-file FILE, or the token on standard input"};
  return trimmed(line);
}

int run(const Io& io, Options options) {
  auto text = token_text(options);
  if (!text.ok()) return fail(io, "enroll", text.error(), kUsage);
  options.token = std::move(*text);
  const auto enrolled = enroll(options);
  if (!enrolled.ok()) {
    return fail(io, "enroll", enrolled.error(), enrolled.error().code == Code::kInvalidArgument ? kUsage : kFailed);
  }
  const char* command = enrolled->member.role == Role::kSite ? "edge" : "aggregator";
  io.print(fmt::format("enrolled as {}{}\n{} {}\nnext: fluvial {} --config {}\n", identity::describe(enrolled->member),
                       enrolled->region.empty() ? "" : " in " + enrolled->region,
                       enrolled->config_kept ? "kept" : "wrote", enrolled->config, command, enrolled->config));
  return kDone;
}

}  // namespace

Result<Enrolled> enroll(const EnrollRequest& request) {
  FLUVIAL_ASSIGN(const identity::EnrolmentToken token, identity::EnrolmentToken::parse(request.token));
  std::error_code error;
  const std::string folder = std::filesystem::absolute(request.data_dir, error).lexically_normal().string();
  if (error) return Error{Code::kInvalidArgument, fmt::format("--data-dir {}: {}", request.data_dir, error.message())};
  FLUVIAL_TRY(refuse_second(folder));
  store::PosixFileSystem files;
  FLUVIAL_TRY(files.make_folder(folder));  // before the token is used up
  FLUVIAL_ASSIGN(const tree::Enrolment enrolment, tree::enrol_blocking(token, {.address = request.coordinator}));
  FLUVIAL_TRY(identity::save_credentials(enrolment.credentials, folder + "/identity"));
  Enrolled enrolled{.member = enrolment.member,
                    .region = enrolment.region,
                    .coordinator = enrolment.coordinator,
                    .config = folder + (enrolment.member.role == Role::kSite ? "/edge.toml" : "/aggregator.toml")};
  FLUVIAL_ASSIGN(enrolled.config_kept, files.exists(enrolled.config));
  if (enrolled.config_kept) return enrolled;
  const std::string text = config_text(request, enrolment, folder);
  const std::array<ByteSpan, 1> parts = {as_byte_span(text)};
  FLUVIAL_TRY(store::write_file_atomically(files, enrolled.config, parts));
  return enrolled;
}

void add_enroll_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<Options>();
  CLI::App* enrolled = app.add_subcommand("enroll", "become a member of a federation with a one-time token");
  CLI::Option* token =
      enrolled
          ->add_option("--token", options->token, "the token's text (others on this machine may see it: prefer a file)")
          ->type_name("TEXT");
  enrolled
      ->add_option("--token-file", options->token_file, "a file that holds it; - (and the default) is standard input")
      ->type_name("FILE")
      ->excludes(token);
  const auto is_address = checked("host:port", [](const std::string& text) -> Status {
    const auto address = config::parse_host_port(text);
    return address.ok() ? Status() : Status(address.error());
  });
  enrolled->add_option("--coordinator", options->coordinator, "its enrolment port, when it is not the one in the token")
      ->type_name("HOST:PORT")
      ->check(is_address);
  enrolled->add_option("--data-dir", options->data_dir, "where key, certificate and configuration go")
      ->type_name("PATH")
      ->envname("FLUVIAL_DATA_DIR")
      ->required();
  enrolled
      ->add_option("--advertise", options->advertise,
                   "of an aggregator: where its children reach it (default: this machine's name)")
      ->type_name("HOST:PORT")
      ->check(is_address);
  enrolled->add_option("--listen", options->listen, "of an aggregator: where it listens")
      ->type_name("HOST:PORT")
      ->capture_default_str()
      ->check(is_address);
  enrolled->footer(
      "The private key is made here and never leaves this machine. The coordinator is known by the pin in the "
      "token.\n"
      "Example:\n  fluvial enroll --token-file token.txt --data-dir /var/lib/fluvial\n"
      "  fluvial edge --config /var/lib/fluvial/edge.toml");
  enrolled->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return run(commands.io, *options); }; });
}

}  // namespace fluvial::cli
