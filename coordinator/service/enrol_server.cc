#include "coordinator/service/enrol_server.h"

#include <algorithm>
#include <utility>

#include "core/config/named.h"
#include "core/identity/csr.h"
#include "core/identity/names.h"
#include "core/identity/secret.h"
#include "core/identity/token.h"
#include "core/net/deadline.h"
#include "core/store/audit_log.h"
#include "core/store/certificate_book.h"
#include "core/tree/ask.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {
namespace {

constexpr std::size_t kStrangersMax = 256;  // connections at once, of whom one address may have half
// Of one member that comes again with what it was enrolled with, since the answer was lost: in a second, and at once.
constexpr double kAgainASecond = 1.0 / 60;
constexpr double kAgainAtOnce = 10;

}  // namespace

EnrolServer::EnrolServer(tree::Runtime& runtime, Registry& registry, store::CoordinatorJournal& journal,
                         const identity::LiveAuthority& authority, RenewalDesk& renewals, EnrolOptions options)
    : runtime_(runtime),
      registry_(registry),
      journal_(journal),
      authority_(authority),
      renewals_(renewals),
      options_(std::move(options)),
      signatures_(static_cast<double>(options_.per_minute_max) / 60, static_cast<double>(options_.per_minute_max),
                  runtime.clock.now()),
      wrong_(static_cast<double>(options_.wrong_per_minute_max) / 60,
             static_cast<double>(options_.wrong_per_minute_max)) {}

Result<std::uint16_t> EnrolServer::open(std::shared_ptr<const identity::LiveTls> tls) {
  net::ListenerSettings settings;
  settings.session = runtime_.session;
  settings.session.header_bytes_max = 64 << 10;  // a token and a request are small
  settings.session.payload_bytes_max = 0;
  settings.session.stranger_bytes_max = 64 << 10;
  settings.sessions_max = 2 * kStrangersMax;
  settings.strangers_max = kStrangersMax;
  settings.strangers_per_address_max = kStrangersMax / 2;
  settings.accepts_per_s = 200;
  settings.accepts_burst = 200;
  auto opened =
      net::Listener::open(runtime_.strangers, options_.host, options_.port, std::move(tls), settings, runtime_.hooks);
  if (!opened.ok()) return config::named_address(opened.error(), "enrol_listen");
  listener_ = std::move(*opened);
  return listener_->port();
}

net::Awaitable<void> EnrolServer::run(std::uint16_t member_port) {
  member_port_ = member_port;
  co_await listener_->run([this](std::shared_ptr<net::Session> session) { return serve(std::move(session)); });
}

void EnrolServer::stop() {
  if (listener_) listener_->stop();
}

void EnrolServer::count(const char* result) const {
  runtime_.metrics.counter("enrolments_total", {{"result", result}}).add();
}

std::chrono::seconds EnrolServer::validity_of(Role role) const {
  return role == Role::kOperator ? options_.operator_validity : options_.certificate_validity;
}

// It has what it asks for already: who asks for it without end takes nothing of what others need to enrol.
Status EnrolServer::may_come_again(NodeId member) {
  const std::lock_guard lock(mutex_);
  const TimePoint now = runtime_.clock.now();
  net::Pace& pace = again_.try_emplace(member, kAgainASecond, kAgainAtOnce, now).first->second;
  if (pace.try_take(now) == Duration::zero()) return {};
  return Error{Code::kResourceExhausted,
               "this member comes too often with the token that it has used; try again later"};
}

Status EnrolServer::may_sign() {
  const std::lock_guard lock(mutex_);
  if (signatures_.try_take(runtime_.clock.now()) == Duration::zero()) return {};
  return Error{Code::kResourceExhausted, "too many enrolments in a minute; try again later"};
}

bool EnrolServer::may_be_wrong(const std::string& remote) {
  const std::lock_guard lock(mutex_);
  return wrong_.take(net::address_key(remote), runtime_.clock.now());
}

net::Awaitable<void> EnrolServer::serve(std::shared_ptr<net::Session> session) {
  Result<net::Frame> asked = co_await net::with_deadline(session->receive(), runtime_.session.handshake_deadline);
  if (asked.ok() && asked->header.has_renew_request()) {
    co_return co_await serve_renewal(std::move(session), std::move(*asked->header.mutable_renew_request()));
  }
  if (!asked.ok() || !asked->header.has_enrol_request()) {
    session->close(asked.ok() ? Error{Code::kFailedPrecondition, "expected an enrolment request"} : asked.error(),
                   true);
    co_return;
  }
  Attempt attempt{session->remote(), {}};
  Result<v1::EnrolReply> reply = co_await enrol(std::move(*asked->header.mutable_enrol_request()), &attempt);
  if (!reply.ok() && reply.error().code == Code::kUnauthenticated && !may_be_wrong(session->remote())) {
    count("too_many_wrong");
    session->close({Code::kResourceExhausted, "too many wrong tokens from this address in a minute; try again later"},
                   true);
    co_return;
  }
  v1::Envelope answer;
  if (reply.ok()) {
    *answer.mutable_enrol_reply() = std::move(*reply);
  } else {
    answer.mutable_enrol_reply()->set_code(wire::code_to_proto(reply.error().code));
    answer.mutable_enrol_reply()->set_message(reply.error().message);
    count("refused");
    runtime_.log.warn("enrolment refused; nobody was let in",
                      {{"remote", session->remote()}, {"reason", reply.error().to_string()}});
    co_await record_refused(std::move(attempt), reply.error().message);
  }
  const Status sent = co_await session->send({std::move(answer), {}});
  session->close({Code::kCancelled, sent.ok() ? "answered" : sent.error().message}, true);
}

// Whoever shows certificates that are nobody's here is bound as whoever shows wrong tokens.
net::Awaitable<void> EnrolServer::serve_renewal(std::shared_ptr<net::Session> session, v1::RenewRequest request) {
  Result<v1::RenewReply> reply = co_await renewals_.renew_ended(std::move(request), session->remote());
  if (!reply.ok() && !may_be_wrong(session->remote())) {
    session->close({Code::kResourceExhausted, "too many refusals of this address in a minute; try again later"}, true);
    co_return;
  }
  v1::Envelope answer;
  if (reply.ok()) {
    *answer.mutable_renew_reply() = std::move(*reply);
  } else {
    answer.mutable_renew_reply()->set_code(wire::code_to_proto(reply.error().code));
    answer.mutable_renew_reply()->set_message(reply.error().message);
  }
  const Status sent = co_await session->send({std::move(answer), {}});
  session->close({Code::kCancelled, sent.ok() ? "answered" : sent.error().message}, true);
}

net::Awaitable<void> EnrolServer::record_refused(Attempt attempt, std::string why) {
  const std::optional<std::uint64_t> before = *co_await tree::ask(
      runtime_.strand,
      [&]() -> Result<std::optional<std::uint64_t>> { return refusals_.happened(runtime_.clock.now()); });
  if (!before) co_return;
  if (*before > 0) why += "; " + std::to_string(*before) + " more before it";
  const store::AuditEntry entry{.kind = store::AuditKind::kEnrolmentRefused,
                                .by = store::AuditBy::kNewcomer,
                                .from = std::move(attempt.from),
                                .token = std::move(attempt.token),
                                .detail = std::move(why)};
  const WallTime when = runtime_.clock.wall_now();
  const Status kept = co_await runtime_.pool.run([&] { return store::AuditLog(journal_).append(entry, when); });
  if (!kept.ok()) {
    runtime_.log.error("a refused enrolment is not in the audit log; nobody was let in",
                       {{"reason", kept.error().to_string()}});
  }
}

Result<EnrolServer::Issued> EnrolServer::issue(const store::TokenRow& token, ByteSpan csr, WallTime now,
                                               const Attempt& attempt) {
  FLUVIAL_TRY(may_sign());
  FLUVIAL_ASSIGN(const identity::Serial serial, identity::serial_of(token.secret_hash, csr));
  const std::string name = identity::member_name(token.name, to_hex(serial));
  FLUVIAL_ASSIGN(const NodeId node, journal_.reserve_node_id(token.role, name));
  const identity::Grant grant{{token.role, node, name}, validity_of(token.role), {}, {}, serial};
  const std::shared_ptr<const identity::CertificateAuthority> authority = authority_.current();
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain, authority->issue_chain(csr, grant, now));
  const identity::Certificate& certificate = chain.front();
  store::NodeRow row;
  row.id = node;
  row.role = token.role;
  row.name = name;
  row.region = token.region;
  row.weight_max = token.weight_max;
  row.certificate_serial = certificate.serial_hex();
  row.enrolled_at = now;
  row.access = token.access;
  // The use is spent before the certificate leaves: it is never good for two keys.
  const Buffer key = certificate.public_key().der();
  const store::AuditEntry entry{.kind = store::AuditKind::kEnrolled,
                                .by = store::AuditBy::kNewcomer,
                                .from = attempt.from,
                                .member = name,
                                .node = node,
                                .role = token.role,
                                .serial = row.certificate_serial,
                                .token = token.id};
  FLUVIAL_ASSIGN(row, store::AuditLog(journal_).with(entry, now, [&] {
    return journal_.redeem_token(token.secret_hash, row, now,
                                 {key.span(), certificate.not_after(), authority->key_id()});
  }));
  FLUVIAL_ASSIGN(const std::uint64_t enrolments, journal_.enrolments(name));
  return Issued{std::move(row), std::move(chain), enrolments - 1};
}

// The journal holds the serial of the member's certificate, and the serial tells token and key. So whoever comes again
// with both gets the same certificate (member, key, serial and dates; a signature is made anew). It gives nothing that
// was not given before, so neither the token's use nor its end stands against it.
Result<std::optional<EnrolServer::Issued>> EnrolServer::issued_before(const store::TokenRow& token, ByteSpan csr,
                                                                      WallTime now) {
  if (!token.used_at) return std::optional<Issued>();
  FLUVIAL_ASSIGN(const identity::Serial serial, identity::serial_of(token.secret_hash, csr));
  const std::string name = identity::member_name(token.name, to_hex(serial));
  FLUVIAL_ASSIGN(std::optional<store::NodeRow> row, journal_.node_named(name));
  if (!row || row->certificate_serial != to_hex(serial)) return std::optional<Issued>();
  FLUVIAL_ASSIGN(const auto known, store::CertificateBook(journal_).find(row->certificate_serial));
  if (!known || known->ends_at <= now) return std::optional<Issued>();
  if (row->revoked_at) {
    return Error{Code::kUnauthenticated,
                 name + " was revoked at " + identity::format_utc(*row->revoked_at) + ": it needs another token"};
  }
  FLUVIAL_TRY(may_come_again(row->id));
  FLUVIAL_TRY(may_sign());
  const auto validity = std::chrono::ceil<std::chrono::seconds>(known->ends_at - row->enrolled_at);
  const identity::Grant grant{{row->role, row->id, row->name}, validity, {}, {}, serial};
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain,
                 authority_.current()->issue_chain(csr, grant, row->enrolled_at));
  FLUVIAL_ASSIGN(const std::uint64_t enrolments, journal_.enrolments(name));  // this one is the last of them
  return std::optional(Issued{std::move(*row), std::move(chain), enrolments - 1, true});
}

Result<EnrolServer::Issued> EnrolServer::redeem(const identity::Secret& secret, ByteSpan csr, WallTime now,
                                                const Attempt& attempt) {
  FLUVIAL_ASSIGN(const std::optional<store::TokenRow> token, journal_.find_token(identity::token_hash(secret)));
  if (!token) return Error{Code::kUnauthenticated, "wrong token: this coordinator does not know it, or no longer"};
  FLUVIAL_ASSIGN(std::optional<Issued> before, issued_before(*token, csr, now));
  if (before) return std::move(*before);
  const identity::TokenRecord record{
      token->id,         token->secret_hash, token->role,
      token->name,       token->region,      static_cast<std::uint32_t>(token->weight_max),
      token->expires_at, token->used_at,     token->uses_max,
      token->uses,       token->revoked_at,  token->revoked_why};
  FLUVIAL_TRY(identity::redeem(record, secret, now));
  return issue(*token, csr, now, attempt);
}

net::Awaitable<Status> EnrolServer::tell_refused() {
  co_await registry_.refresh_refused();
  co_return Status{};
}

net::Awaitable<Result<v1::EnrolReply>> EnrolServer::enrol(v1::EnrolRequest request, Attempt* attempt) {
  const Result<identity::Secret> secret = identity::Secret::from_bytes(as_byte_span(request.token_secret()));
  identity::wipe({reinterpret_cast<std::byte*>(request.mutable_token_secret()->data()), request.token_secret().size()});
  if (!secret.ok() || request.csr_der().size() > identity::kCsrBytesMax) {
    co_return Error{Code::kInvalidArgument, "not an enrolment request"};
  }
  attempt->token = identity::token_id(identity::token_hash(*secret));
  const WallTime now = runtime_.clock.wall_now();
  Result<Issued> issued = co_await runtime_.pool.run(
      [&]() -> Result<Issued> { return redeem(*secret, as_byte_span(request.csr_der()), now, *attempt); });
  if (!issued.ok()) co_return issued.error();
  const store::NodeRow& row = issued->row;
  if (!issued->again) {
    const Status known = co_await tree::ask(runtime_.strand, [&] {
      if (registry_.enrolled(row, issued->chain.front().public_key().id()) && options_.replaced)
        options_.replaced(row.id);
      return Status{};
    });
    if (!known.ok()) co_return known.error();
    const Status told = co_await tree::run_on(runtime_.strand, tell_refused());
    if (!told.ok()) co_return told.error();
  }
  count(issued->again ? "again" : "granted");
  runtime_.log.info(
      issued->again ? "enrolled before: the same certificate again" : "enrolled",
      {{"member", row.name}, {"member_id", row.id}, {"member_role", role_name(row.role)}, {"region", row.region}});
  v1::EnrolReply reply;
  const auto authority = authority_.current();
  reply.set_certificate_pem(identity::Certificate::pem_of(issued->chain));
  reply.set_ca_pem(identity::Certificate::pem_of(authority->authorities()));
  reply.set_trust(authority->trust());
  reply.set_node(row.id.value());
  reply.set_name(row.name);
  reply.set_role(wire::role_to_proto(row.role));
  reply.set_region(row.region);
  reply.set_port(member_port_);
  reply.set_enrolled_before(issued->enrolled_before);
  co_return reply;
}

}  // namespace fluvial::coordinator
