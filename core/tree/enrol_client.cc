#include "core/tree/enrol_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <optional>

#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/tls.h"
#include "core/net/connector.h"
#include "core/net/deadline.h"
#include "core/net/run_on.h"
#include "core/wire/mapping.h"

namespace fluvial::tree {
namespace {

constexpr std::string_view kAnswer = "the coordinator's answer";

Error refuse(const std::string& what) { return {Code::kDataLoss, fmt::format("{} {}", kAnswer, what)}; }

// The others are there because the one that the token names vouches for them: its certificate's holder sent them.
Result<std::vector<identity::Certificate>> authorities_from(const std::string& pem, const std::string& pin) {
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> all, identity::Certificate::authorities_from_pem(pem));
  const auto is_named = [&pin](const identity::Certificate& one) { return identity::pin_of(one) == pin; };
  if (std::ranges::none_of(all, is_named)) return refuse("names another authority than the token's pin");
  return all;
}

// A token for several members names none of them: token and key do, as the coordinator makes it of them.
Result<std::string> name_for(const identity::EnrolmentToken& token, const identity::PrivateKey& key) {
  if (!identity::names_several(token.name)) return token.name;
  FLUVIAL_ASSIGN(const Buffer csr, identity::make_csr(key));
  FLUVIAL_ASSIGN(const identity::Serial serial, identity::serial_of(identity::token_hash(token.secret), csr.span()));
  return identity::member_name(token.name, to_hex(serial));
}

using Exchanged = std::optional<Result<v1::EnrolReply>>;

net::Awaitable<Result<v1::EnrolReply>> exchange(std::shared_ptr<net::Session> session, std::string secret,
                                                std::string csr_der, Duration reply_deadline) {
  net::OutFrame request;
  auto* body = request.header.mutable_enrol_request();
  body->set_token_secret(secret);
  body->set_csr_der(csr_der);
  FLUVIAL_CO_TRY(co_await session->send(std::move(request)));
  auto frame = co_await net::with_deadline(session->receive(), reply_deadline);
  if (!frame.ok()) co_return frame.error();
  if (!frame->header.has_enrol_reply()) co_return refuse("is no answer to an enrolment");
  co_return std::move(*frame->header.mutable_enrol_reply());
}

// co_spawn() wants a result that can be made from nothing.
template <typename T>
net::Awaitable<void> keep(net::Awaitable<Result<T>> operation, std::optional<Result<T>>* out) {
  out->emplace(co_await std::move(operation));
}

}  // namespace

Result<Enrolment> accept_enrolment(const v1::EnrolReply& reply, const identity::PrivateKey& key,
                                   const identity::EnrolmentToken& token, const std::string& host) {
  FLUVIAL_TRY(wire::status_from_proto(reply.code(), reply.message()));
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> authorities, authorities_from(reply.ca_pem(), token.pin));
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain,
                 identity::Certificate::chain_from_pem(reply.certificate_pem()));
  FLUVIAL_ASSIGN(const identity::PeerIdentity identity, identity::identity_of(chain.front()));
  if (reply.enrolled_before() > identity::kEnrolledBeforeMax) return refuse("names too many enrolments");
  identity::Credentials credentials{key, std::move(chain), std::move(authorities), reply.enrolled_before(),
                                    reply.trust()};
  FLUVIAL_TRY(identity::check_credentials(credentials, "the certificate in " + std::string(kAnswer)));
  FLUVIAL_ASSIGN(const Role role, wire::role_from_proto(reply.role()));
  if (identity.role != role || identity.name != reply.name() || identity.node.value() != reply.node()) {
    return refuse(fmt::format("is for {} {}, its certificate for {}", role_name(role), wire::printable(reply.name()),
                              identity::describe(identity)));
  }
  FLUVIAL_ASSIGN(const std::string name, name_for(token, key));
  if (role != token.role || identity.name != name) {
    return refuse(
        fmt::format("is for {}, the token for {} {}", identity::describe(identity), role_name(token.role), name));
  }
  FLUVIAL_TRY(identity::check_region(reply.region()));
  if (reply.port() == 0 || reply.port() > 65'535) return refuse(fmt::format("names port {}", reply.port()));
  return Enrolment{.credentials = std::move(credentials),
                   .member = {.role = role, .node = identity.node, .name = identity.name},
                   .region = reply.region(),
                   .coordinator = net::to_string({host, static_cast<std::uint16_t>(reply.port())})};
}

net::Awaitable<Result<Enrolment>> enrol(net::Executor executor, identity::EnrolmentToken token,
                                        identity::PrivateKey key, EnrolSettings settings) {
  const std::string address = settings.address.empty() ? token.address : settings.address;
  if (address.empty()) {
    co_return Error{Code::kInvalidArgument, "the token names no coordinator: give its address, host:port"};
  }
  FLUVIAL_CO_ASSIGN(const net::HostPort where, net::parse_host_port(address));
  FLUVIAL_CO_ASSIGN(const Buffer csr, identity::make_csr(key));
  FLUVIAL_CO_ASSIGN(const auto tls, identity::TlsContext::enrol_client(token.pin));
  auto session = co_await net::connect(executor, where.host, where.port, tls, settings.session);
  if (!session.ok()) co_return session.error();
  const std::shared_ptr<net::Session>& open = *session;
  auto exchanged = exchange(open, std::string(as_text(token.secret.bytes())), std::string(as_text(csr.span())),
                            settings.reply_deadline);
  Exchanged reply;
  co_await net::run_on(open->executor(), keep(std::move(exchanged), &reply));
  open->close({Code::kCancelled, "enrolled"}, true);
  if (!reply->ok()) co_return reply->error();
  co_return accept_enrolment(**reply, key, token, where.host);
}

Result<Enrolment> enrol_blocking(const identity::EnrolmentToken& token, const identity::PrivateKey& key,
                                 const EnrolSettings& settings) {
  boost::asio::io_context context(1);
  std::optional<Result<Enrolment>> result;
  std::exception_ptr failed;
  boost::asio::co_spawn(context, keep(enrol(context.get_executor(), token, key, settings), &result),
                        [&failed](std::exception_ptr error) { failed = error; });
  context.run();
  if (!failed) return std::move(*result);
  try {
    std::rethrow_exception(failed);
  } catch (const std::exception& error) {
    return Error{Code::kInternal, fmt::format("enrolment failed: {}", error.what())};
  }
}

}  // namespace fluvial::tree
