#include "cli/enroll.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <thread>

#include "cli/format.h"
#include "cli/operator_identity.h"
#include "core/base/backoff.h"
#include "core/config/settings.h"
#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/own_key.h"
#include "core/net/proxy.h"
#include "core/store/file_system.h"
#include "core/tree/renewal.h"

namespace fluvial::cli {
namespace {

constexpr std::uint16_t kAggregatorPort = 7410;

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
  std::string text = fmt::format(
      "# {}. Written by fluvial enroll; every setting is explained in docs/operations/settings.md.\n"
      "data_dir = {}\ncoordinator = {}\n",
      identity::describe(enrolment.member), toml_string(folder), toml_string(enrolment.coordinator));
  if (enrolment.member.role == Role::kSite) return text;
  std::string advertise = request.advertise;
  if (advertise.empty()) {
    const auto listen = config::parse_host_port(request.listen);
    advertise = config::format_host_port({host_name(), listen.ok() ? listen->port : kAggregatorPort});
  }
  text += fmt::format("advertise = {}  # where its children reach it\n", toml_string(advertise));
  if (!request.listen.empty()) text += fmt::format("listen = {}\n", toml_string(request.listen));
  return text;
}

std::string config_of(const std::string& folder, Role role) {
  return folder + (role == Role::kSite ? "/edge.toml" : "/aggregator.toml");
}

Result<std::string> absolute_folder(const std::string& data_dir) {
  std::error_code error;
  std::string folder = std::filesystem::absolute(data_dir, error).lexically_normal().string();
  if (error) return Error{Code::kInvalidArgument, fmt::format("--data-dir {}: {}", data_dir, error.message())};
  return folder;
}

// The coordinator, or the way to it, is away, or it asks to come again later.
bool may_pass(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kDeadlineExceeded ||
         error.code == Code::kResourceExhausted || error.code == Code::kCancelled;
}

Result<tree::Enrolment> ask_coordinator(const EnrollRequest& request, const identity::EnrolmentToken& token,
                                        const identity::PrivateKey& key) {
  FLUVIAL_ASSIGN(auto proxy, net::proxy_rules(request.proxy, request.no_proxy));
  tree::EnrolSettings settings{.address = request.coordinator};
  settings.session.proxy = std::move(proxy);
  Backoff backoff({.first = std::chrono::milliseconds(500), .cap = std::chrono::seconds(10)},
                  Rng(static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())));
  const auto end = std::chrono::steady_clock::now() + request.wait;
  for (;;) {
    auto enrolment = tree::enrol_blocking(token, key, settings);
    const auto left = end - std::chrono::steady_clock::now();
    if (enrolment.ok() || !may_pass(enrolment.error()) || left <= Duration(0)) return enrolment;
    if (request.progress) {
      const auto seconds = std::chrono::ceil<std::chrono::seconds>(left).count();
      request.progress(fmt::format("{}; trying again for {} s", enrolment.error().message, seconds));
    }
    std::this_thread::sleep_for(std::min<Duration>(backoff.next(), left));
  }
}

Error refuse_other(const Enrolled& before, const identity::EnrolmentToken& token, const std::string& folder) {
  return {Code::kAlreadyExists,
          fmt::format("{} is enrolled already as {}, the token is for {} {}; remove {}/identity to enrol anew", folder,
                      identity::describe(before.member), role_name(token.role), token.name, folder)};
}

constexpr const char* kTokenFile = "/identity/token_sha256";  // of the token that the member was enrolled with
constexpr std::uint64_t kHashBytesMax = 100;

// A member may come with a token that it was not enrolled with: for another maximum, or after its certificate has
// ended. A folder of an earlier version does not say with which it was; then it stays as it is.
bool is_another_token(store::FileSystem& files, const std::string& folder, const std::string& hash) {
  const auto used = store::read_file(files, folder + kTokenFile, kHashBytesMax);
  return used.ok() && as_text(used->span()) != hash;
}

Status write_note(store::FileSystem& files, const std::string& path, const std::string& text) {
  const std::array<ByteSpan, 1> parts = {as_byte_span(text)};
  return store::write_file_atomically(files, path, parts);
}

}  // namespace

Result<std::optional<Enrolled>> enrolled_before(const std::string& data_dir) {
  FLUVIAL_ASSIGN(const std::string folder, absolute_folder(data_dir));
  std::error_code error;
  if (std::filesystem::exists(folder + "/ca", error)) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("{} is a coordinator's folder (it holds ca/): a member needs one of its own", folder)};
  }
  const auto credentials = identity::load_credentials(folder + "/identity");
  if (!credentials.ok() && credentials.error().code == Code::kNotFound) return std::optional<Enrolled>();
  if (!credentials.ok()) return credentials.error();
  FLUVIAL_ASSIGN(const identity::PeerIdentity own, identity::identity_of(credentials->chain.front()));
  return std::optional(Enrolled{.member = {own.role, own.node, own.name},
                                .region = "",
                                .coordinator = "",
                                .config = config_of(folder, own.role),
                                .config_kept = true,
                                .already = true});
}

Result<Enrolled> enroll_operator(const EnrollRequest& request, const identity::EnrolmentToken& token,
                                 const config::Environment& environment) {
  std::string folder = request.identity;
  if (folder.empty()) {
    FLUVIAL_ASSIGN(const std::string all, identities_folder(environment));
    folder = all + "/" + token.name;
  }
  FLUVIAL_ASSIGN(folder, absolute_folder(folder));
  Enrolled enrolled{.member = {token.role, NodeId(), token.name}, .region = "", .coordinator = "", .config = folder};
  const auto before = identity::load_credentials(folder);
  if (!before.ok() && before.error().code != Code::kNotFound) return before.error();
  if (before.ok()) {
    FLUVIAL_ASSIGN(const identity::PeerIdentity own, identity::identity_of(before->chain.front()));
    const bool same = own.role == Role::kOperator && own.name == token.name &&
                      identity::pin_of(before->authorities.front()) == token.pin;
    if (!same) {
      return Error{Code::kAlreadyExists, fmt::format("{} holds the identity of {}, of this or another federation: give "
                                                     "--identity with another folder",
                                                     folder, identity::describe(own))};
    }
    FLUVIAL_ASSIGN(const Buffer csr, identity::make_csr(before->key));
    FLUVIAL_ASSIGN(const identity::Serial serial, identity::serial_of(identity::token_hash(token.secret), csr.span()));
    enrolled.member.node = own.node;
    enrolled.already = to_hex(serial) == own.serial_hex;
    if (enrolled.already) return enrolled;
  }
  FLUVIAL_ASSIGN(const identity::PrivateKey key, identity::load_or_make_key(folder));
  FLUVIAL_ASSIGN(const tree::Enrolment enrolment, ask_coordinator(request, token, key));
  FLUVIAL_TRY(identity::save_credentials(enrolment.credentials, folder));
  enrolled.member = enrolment.member;
  enrolled.coordinator = enrolment.coordinator;
  return enrolled;
}

Result<Enrolled> enroll(const EnrollRequest& request) {
  FLUVIAL_ASSIGN(const identity::EnrolmentToken token, identity::EnrolmentToken::parse(request.token));
  if (request.role && token.role != *request.role) {
    return Error{Code::kInvalidArgument, fmt::format("the token is for {} {}: expected one for the role {}",
                                                     role_name(token.role), token.name, role_name(*request.role))};
  }
  if (token.role == Role::kOperator) return enroll_operator(request, token, config::process_environment());
  if (request.data_dir.empty()) {
    return Error{Code::kInvalidArgument, "a member needs a folder of its own: give --data-dir or FLUVIAL_DATA_DIR"};
  }
  FLUVIAL_ASSIGN(const std::string folder, absolute_folder(request.data_dir));
  FLUVIAL_ASSIGN(std::optional<Enrolled> before, enrolled_before(folder));
  if (before && (before->member.role != token.role || !identity::is_for(token.name, before->member.name))) {
    return refuse_other(*before, token, folder);
  }
  store::PosixFileSystem files;
  const std::string hash = to_hex(identity::token_hash(token.secret)) + "\n";
  if (before && !is_another_token(files, folder, hash)) return std::move(*before);
  FLUVIAL_TRY(files.make_folder(folder));  // before the token is used up
  FLUVIAL_ASSIGN(const identity::PrivateKey key, identity::load_or_make_key(folder + "/identity"));
  FLUVIAL_ASSIGN(const tree::Enrolment enrolment, ask_coordinator(request, token, key));
  Enrolled enrolled{.member = enrolment.member,
                    .region = enrolment.region,
                    .coordinator = enrolment.coordinator,
                    .config = config_of(folder, enrolment.member.role)};
  FLUVIAL_ASSIGN(const bool has_state, files.exists(folder + "/state"));
  enrolled.again = before.has_value() || has_state;
  FLUVIAL_ASSIGN(enrolled.config_kept, files.exists(enrolled.config));
  if (!enrolled.config_kept) {
    FLUVIAL_TRY(write_note(files, enrolled.config, config_text(request, enrolment, folder)));
  }
  const std::string where = (request.coordinator.empty() ? token.address : request.coordinator) + "\n";
  FLUVIAL_TRY(
      write_note(files, folder + "/identity/" + tree::kEnrolAddressFile, where));  // for when the certificate has ended
  FLUVIAL_TRY(write_note(files, folder + kTokenFile, hash));
  FLUVIAL_TRY(identity::save_credentials(enrolment.credentials, folder + "/identity"));
  return enrolled;
}

}  // namespace fluvial::cli
