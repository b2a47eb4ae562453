#include "cli/operator_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "cli/json.h"
#include "core/config/settings.h"
#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/token.h"
#include "core/identity/verify.h"

namespace fluvial::cli {
namespace {

constexpr std::string_view kScheme = "https://";
constexpr Duration kRenewDeadline = std::chrono::seconds(10);

std::string_view without_scheme(std::string_view text) {
  if (text.starts_with(kScheme)) text.remove_prefix(kScheme.size());
  while (text.ends_with('/')) text.remove_suffix(1);
  return text;
}

Result<identity::Credentials> load(const std::string& folder) {
  auto credentials = identity::load_credentials(folder);
  if (!credentials.ok() && credentials.error().code == Code::kNotFound) {
    return Error{Code::kNotFound,
                 fmt::format("{} holds no identity: fluvial enroll --token-file FILE --identity {}", folder, folder)};
  }
  return credentials;
}

Status check_operator(const identity::Credentials& credentials, const std::string& folder, WallTime now) {
  const identity::Certificate& own = credentials.chain.front();
  FLUVIAL_ASSIGN(const identity::PeerIdentity who, identity::identity_of(own));
  if (who.role != Role::kOperator) {
    return Error{Code::kPermissionDenied,
                 fmt::format("{} is the identity of {}: the admin API over the network is for operators (fluvial token "
                             "create --role operator)",
                             folder, identity::describe(who))};
  }
  if (age_of(own, now) != CertificateAge::kEnded) return {};
  return Error{Code::kUnauthenticated,
               fmt::format("the certificate of operator {} in {} ended at {}: ask for a new token and enrol with it",
                           who.name, folder, identity::format_utc(own.not_after()))};
}

Result<AdminPlace> place_of(const std::string& text, const std::string& folder,
                            const identity::Credentials& credentials) {
  FLUVIAL_ASSIGN(const config::HostPort at, config::parse_host_port(without_scheme(text)));
  FLUVIAL_ASSIGN(auto tls, identity::TlsContext::admin_client(credentials));
  return AdminPlace{net::TlsAddress{{at.host, at.port}, std::move(tls)},
                    std::string(kScheme) + config::format_host_port(at), folder};
}

Result<identity::Credentials> renew(const AdminPlace& place, const identity::Credentials& old, WallTime now) {
  FLUVIAL_ASSIGN(const Buffer csr, identity::make_csr(old.key));
  FLUVIAL_ASSIGN(const net::HttpReply reply,
                 net::http_request(place.address, "POST", "/v1/renew", as_text(csr.span()), kRenewDeadline));
  FLUVIAL_ASSIGN(const json::value answer, parse_json(reply.body, "the coordinator's answer"));
  if (reply.status != 200) return Error{Code::kUnavailable, text_member(answer, "message")};
  identity::Credentials renewed = old;
  FLUVIAL_ASSIGN(renewed.chain, identity::Certificate::chain_from_pem(text_member(answer, "certificate_pem")));
  FLUVIAL_ASSIGN(renewed.authorities, identity::Certificate::authorities_from_pem(text_member(answer, "ca_pem")));
  renewed.trust = count_member(answer, "trust");
  FLUVIAL_TRY(identity::check_credentials(renewed, "the renewed certificate"));
  FLUVIAL_ASSIGN(const identity::PeerIdentity who,
                 identity::verify_chain(renewed.chain, renewed.authorities, now, identity::Ended{}));
  FLUVIAL_ASSIGN(const identity::PeerIdentity before, identity::identity_of(old.chain.front()));
  if (who.role != before.role || who.node != before.node || who.name != before.name) {
    return Error{Code::kUnauthenticated, "the renewed certificate is " + identity::describe(who) + "'s"};
  }
  return renewed;
}

}  // namespace

Status check_admin_place(const std::string& text) {
  const bool is_good = text.starts_with(kScheme) ? config::parse_host_port(without_scheme(text)).ok()
                                                 : text.find("://") == std::string::npos;
  return is_good ? Status() : Error{Code::kInvalidArgument, "no place of the admin API"};
}

bool is_network_place(const std::string& text) {
  if (text.starts_with(kScheme)) return true;
  return text.find('/') == std::string::npos && config::parse_host_port(text).ok();
}

Result<std::string> identities_folder(const config::Environment& environment) {
  const std::string config = environment("XDG_CONFIG_HOME").value_or("");
  if (!config.empty()) return config + "/fluvial";
  const std::string home = environment("HOME").value_or("");
  if (!home.empty()) return home + "/.config/fluvial";
  return Error{Code::kFailedPrecondition, "neither XDG_CONFIG_HOME nor HOME is set: give --identity DIR"};
}

Result<std::string> find_identity(const std::string& given, const config::Environment& environment) {
  if (!given.empty()) return given;
  FLUVIAL_ASSIGN(const std::string folder, identities_folder(environment));
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    if (std::filesystem::exists(at->path() / "cert.pem", unreadable)) found.push_back(at->path().string());
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Error{Code::kNotFound,
                 fmt::format("no identity in {}: enrol with an operator's token (fluvial enroll --token-file FILE), or "
                             "give --identity DIR",
                             folder)};
  }
  std::ranges::sort(found);
  return Error{Code::kFailedPrecondition,
               fmt::format("several identities, {}: say which with --identity DIR", fmt::join(found, ", "))};
}

CertificateAge age_of(const identity::Certificate& certificate, WallTime now) {
  if (certificate.not_after() <= now) return CertificateAge::kEnded;
  const WallTime issued = certificate.not_before() + identity::kBackdated;
  const bool second_half = now >= issued + (certificate.not_after() - issued) / 2;
  return second_half ? CertificateAge::kToRenew : CertificateAge::kYoung;
}

Result<AdminPlace> operator_place(const std::string& text, const std::string& folder, WallTime now) {
  FLUVIAL_ASSIGN(const identity::Credentials credentials, load(folder));
  FLUVIAL_TRY(check_operator(credentials, folder, now));
  FLUVIAL_ASSIGN(AdminPlace place, place_of(text, folder, credentials));
  if (age_of(credentials.chain.front(), now) != CertificateAge::kToRenew) return place;
  const Result<identity::Credentials> renewed = renew(place, credentials, now);
  if (!renewed.ok()) return place;  // what is asked next says what is wrong, if it is more than this
  FLUVIAL_TRY(identity::save_credentials(*renewed, folder));
  return place_of(text, folder, *renewed);
}

}  // namespace fluvial::cli
