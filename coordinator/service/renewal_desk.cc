#include "coordinator/service/renewal_desk.h"

#include <algorithm>
#include <utility>

#include "core/digest/sha256.h"
#include "core/identity/csr.h"
#include "core/identity/token.h"
#include "core/identity/verify.h"
#include "core/round/renewal.h"
#include "core/store/audit_log.h"
#include "core/store/authority_book.h"
#include "core/store/certificate_book.h"
#include "core/tree/ask.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {
namespace {

constexpr std::string_view kOfSerial = "fluvial renewal 1";  // hashed before a serial
constexpr int kFollowedMax = 10'000;                         // renewals of one certificate: years of them
// Of one member: in a life of what is issued now, in a second at least, and at once.
constexpr double kALife = 8;
constexpr double kASecond = 1.0 / 600;
constexpr double kAtOnce = 10;

Result<identity::Serial> serial_after(const std::string& serial, ByteSpan csr) {
  Sha256 hash;
  hash.update(as_byte_span(kOfSerial));
  hash.update(as_byte_span(serial));
  return identity::serial_of(hash.finish(), csr);
}

// What was issued serves as well as a new one. If the clock was set back since, it may not have begun.
bool serves(const store::CertificateRow& row, const Digest& authority, std::chrono::seconds validity, WallTime now) {
  const auto left = row.ends_at - now;
  const bool by_this = std::ranges::equal(row.authority, authority);
  const bool has_begun = row.issued_at - now <= identity::kBackdated;
  return by_this && has_begun && row.refused_why.empty() && 2 * left > row.ends_at - row.issued_at &&
         left <= round::kMuchLonger * validity;
}

v1::RenewReply reply_with(const Error& why) {
  v1::RenewReply reply;
  reply.set_code(wire::code_to_proto(why.code));
  reply.set_message(why.message);
  return reply;
}

}  // namespace

RenewalDesk::RenewalDesk(tree::Runtime& runtime, Registry& registry, store::CoordinatorJournal& journal,
                         const identity::LiveAuthority& authority, RenewalOptions options)
    : runtime_(runtime),
      registry_(registry),
      journal_(journal),
      authority_(authority),
      options_(options),
      signatures_(static_cast<double>(options_.per_minute_max) / 60, static_cast<double>(options_.per_minute_max),
                  runtime.clock.now()) {
  runtime_.metrics.gauge("certificate_validity_seconds").set(static_cast<double>(options_.validity.count()));
}

void RenewalDesk::count(const char* result) const {
  runtime_.metrics.counter("renewals_total", {{"result", result}}).add();
}

// Whoever asks without end, because its clock is ahead by half a life or because it wants to, takes neither the others'
// budget nor the journal's room.
Status RenewalDesk::may_ask(NodeId member) {
  const std::lock_guard lock(mutex_);
  const double a_second =
      std::max(kASecond, kALife / static_cast<double>(std::max<std::int64_t>(1, options_.validity.count())));
  const TimePoint now = runtime_.clock.now();
  if (paces_.try_emplace(member, a_second, kAtOnce, now).first->second.try_take(now) == Duration::zero()) return {};
  return Error{Code::kResourceExhausted,
               "this member renews its certificate too often; try again later, and compare its clock"};
}

Status RenewalDesk::may_sign() {
  const std::lock_guard lock(mutex_);
  if (signatures_.try_take(runtime_.clock.now()) == Duration::zero()) return {};
  return Error{Code::kResourceExhausted, "too many renewals in a minute; try again later"};
}

// What the journal says of the holder counts, whatever list somebody has.
Status RenewalDesk::may_renew(const identity::PeerIdentity& holder, ByteSpan csr) {
  if (holder.role == Role::kOperator) {
    return Error{
        Code::kUnauthenticated,
        "an operator renews at the admin API, as long as its certificate is good; after its end it needs a token"};
  }
  FLUVIAL_ASSIGN(const identity::PublicKey key, identity::key_of_csr(csr));
  if (!holder.key || key.id() != holder.key.id()) {
    return Error{Code::kUnauthenticated, "the request is of another key than the certificate: a renewal keeps the key"};
  }
  FLUVIAL_ASSIGN(const std::optional<store::NodeRow> node, journal_.node(holder.node));
  if (!node || node->name != holder.name || node->role != holder.role) {
    return Error{Code::kUnauthenticated,
                 identity::describe(holder) + " is not known to this coordinator: it needs a token"};
  }
  if (node->revoked_at) {
    return Error{Code::kUnauthenticated, holder.name + " was revoked at " + identity::format_utc(*node->revoked_at) +
                                             ": it needs a token and another key"};
  }
  store::CertificateBook certificates(journal_);
  FLUVIAL_ASSIGN(const auto shown, certificates.find(holder.serial_hex));
  if (shown && (shown->node != holder.node || !shown->refused_why.empty())) {
    return Error{Code::kUnauthenticated,
                 "certificate " + holder.serial_hex + " was " + shown->refused_why + ": the member needs a token"};
  }
  // On the enrolment port no handshake has asked the deny list.
  FLUVIAL_ASSIGN(const store::Refusals before_restore, certificates.taken_over());
  if (before_restore.serials.contains(holder.serial_hex) || before_restore.keys.contains(holder.key.id())) {
    return Error{Code::kUnauthenticated, "certificate " + holder.serial_hex +
                                             " was refused after the backup that this coordinator was restored from: "
                                             "the member needs a token and another key"};
  }
  FLUVIAL_ASSIGN(const auto current, certificates.current_of(holder.node));
  const Buffer der = holder.key.der();
  const bool is_current = current && !current->key.empty() ? std::ranges::equal(current->key, der.span())
                                                           : node->certificate_serial == holder.serial_hex;
  if (is_current) return {};
  return Error{Code::kUnauthenticated, holder.name + " has enrolled anew since, with another key"};
}

Result<RenewalDesk::Place> RenewalDesk::place_after(const identity::PeerIdentity& holder, ByteSpan csr, WallTime now) {
  store::CertificateBook certificates(journal_);
  const Digest authority = authority_.current()->key_id();
  std::string serial = holder.serial_hex;
  for (int followed = 0; followed < kFollowedMax; ++followed) {
    FLUVIAL_ASSIGN(const identity::Serial next, serial_after(serial, csr));
    serial = to_hex(next);
    FLUVIAL_ASSIGN(std::optional<store::CertificateRow> row, certificates.find(serial));
    if (!row) return Place{next, std::nullopt};
    if (serves(*row, authority, options_.validity, now)) return Place{next, std::move(row)};
  }
  return Error{Code::kUnauthenticated, "the certificate was renewed too often since: the member needs a token"};
}

// Its certificate before is one that it holds, and it trusts whom it says: between two leases this is when that is
// seen.
Result<bool> RenewalDesk::note_shown(const identity::PeerIdentity& holder, std::uint64_t trust, WallTime now) {
  const Buffer key = holder.key.der();
  FLUVIAL_TRY(store::AuthorityBook(journal_).shown(holder.node, trust));
  FLUVIAL_ASSIGN(const store::CertificateSeen seen,
                 store::CertificateBook(journal_).saw(
                     {holder.serial_hex, holder.node, key.span(), holder.not_after, holder.issued}, now));
  return seen.refuses_more;
}

Result<RenewalDesk::Issued> RenewalDesk::issue(const identity::PeerIdentity& holder, const Asked& asked, WallTime now) {
  const ByteSpan csr = as_byte_span(asked.csr);
  FLUVIAL_TRY(may_renew(holder, csr));
  FLUVIAL_TRY(may_ask(holder.node));
  FLUVIAL_ASSIGN(const bool refuses_more, note_shown(holder, asked.trust, now));
  FLUVIAL_ASSIGN(const Place place, place_after(holder, csr, now));
  FLUVIAL_TRY(may_sign());
  // Whole seconds, as in the certificate: so the same dates can be given again.
  const WallTime begins = place.row ? place.row->issued_at : std::chrono::floor<std::chrono::seconds>(now);
  const auto validity =
      place.row ? std::chrono::floor<std::chrono::seconds>(place.row->ends_at - begins) : options_.validity;
  const std::shared_ptr<const identity::CertificateAuthority> authority = authority_.current();
  const identity::Grant grant{{holder.role, holder.node, holder.name}, validity, {}, {}, place.serial};
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain, authority->issue_chain(csr, grant, begins));
  if (place.row) return Issued{std::move(chain), begins, true, refuses_more};
  const Buffer key = holder.key.der();
  const store::RenewedCertificate row{chain.front().serial_hex(), holder.node,       key.span(),         begins,
                                      chain.front().not_after(),  holder.serial_hex, authority->key_id()};
  const store::AuditEntry entry{.kind = store::AuditKind::kRenewed,
                                .by = store::AuditBy::kMember,
                                .from = asked.from,
                                .member = holder.name,
                                .node = holder.node,
                                .role = holder.role,
                                .serial = row.serial,
                                .detail = "of " + row.renews};
  // In the journal before it leaves.
  FLUVIAL_TRY(
      store::AuditLog(journal_).with(entry, now, [&] { return store::CertificateBook(journal_).renewed(row, now); }));
  return Issued{std::move(chain), begins, false, refuses_more};
}

net::Awaitable<Status> RenewalDesk::tell_refused() {
  co_await registry_.refresh_refused();
  co_return Status{};
}

net::Awaitable<Result<v1::RenewReply>> RenewalDesk::answer(identity::PeerIdentity holder, Asked asked) {
  if (asked.csr.size() > identity::kCsrBytesMax) co_return Error{Code::kInvalidArgument, "not a renewal's request"};
  const WallTime now = runtime_.clock.wall_now();
  const Result<Issued> issued = co_await runtime_.pool.run([&] { return issue(holder, asked, now); });
  if (!issued.ok()) co_return issued.error();
  if (issued->refuses_more) {
    const Status told = co_await tree::run_on(runtime_.strand, tell_refused());
    if (!told.ok()) co_return told.error();
  }
  const identity::Certificate& own = issued->chain.front();
  if (!issued->again) {
    const bool known = co_await tree::ask(runtime_.strand, [&] {
      registry_.renewed(holder.node, own.serial_hex(), {holder.key.id(), issued->issued});
      return true;
    });
    (void)known;
  }
  count(issued->again ? "again" : "granted");
  runtime_.log.info(issued->again ? "renewed before: the same certificate again" : "certificate renewed",
                    {{"member", holder.name},
                     {"serial", own.serial_hex()},
                     {"certificate_ends_at", identity::format_utc(own.not_after())}});
  const std::shared_ptr<const identity::CertificateAuthority> authority = authority_.current();
  v1::RenewReply reply;
  reply.set_certificate_pem(identity::Certificate::pem_of(issued->chain));
  reply.set_ca_pem(identity::Certificate::pem_of(authority->authorities()));
  reply.set_trust(authority->trust());
  co_return reply;
}

net::Awaitable<v1::RenewReply> RenewalDesk::renew(identity::PeerIdentity holder, v1::RenewRequest request,
                                                  std::string from) {
  const std::string member = holder.name;
  Result<v1::RenewReply> reply =
      co_await answer(std::move(holder), {std::move(*request.mutable_csr_der()), request.trust(), from});
  if (reply.ok()) co_return std::move(*reply);
  co_await record_refused(member, std::move(from), reply.error());
  co_return reply_with(reply.error());
}

Result<identity::PeerIdentity> RenewalDesk::holder_of(const std::string& certificate_pem, WallTime now) const {
  FLUVIAL_ASSIGN(const std::vector<identity::Certificate> chain,
                 identity::Certificate::chain_from_pem(certificate_pem));
  const auto ended = std::chrono::ceil<std::chrono::seconds>(now - chain.front().not_after());
  if (ended > options_.ended_max) {
    return Error{Code::kUnauthenticated,
                 "the certificate ended at " + identity::format_utc(chain.front().not_after()) +
                     ", too long ago to be renewed (renew_ended_max_s): the member needs a token"};
  }
  return identity::verify_chain(chain, authority_.current()->authorities(), now,
                                {options_.ended_max + std::chrono::seconds(1)});
}

net::Awaitable<Result<v1::RenewReply>> RenewalDesk::renew_ended(v1::RenewRequest request, std::string from) {
  Error why;
  std::string member;
  const Result<identity::PeerIdentity> holder = holder_of(request.certificate_pem(), runtime_.clock.wall_now());
  if (holder.ok()) {
    member = holder->name;
    Result<v1::RenewReply> reply =
        co_await answer(*holder, {std::move(*request.mutable_csr_der()), request.trust(), from});
    if (reply.ok()) co_return reply;
    why = reply.error();
  } else {
    why = {Code::kUnauthenticated, holder.error().message};
  }
  co_await record_refused(std::move(member), std::move(from), why);
  if (why.code == Code::kUnauthenticated) co_return why;
  co_return reply_with(why);
}

net::Awaitable<void> RenewalDesk::record_refused(std::string member, std::string from, Error why) {
  count(why.code == Code::kResourceExhausted ? "too_many" : "refused");
  const std::optional<std::uint64_t> before = *co_await tree::ask(
      runtime_.strand,
      [&]() -> Result<std::optional<std::uint64_t>> { return refusals_.happened(runtime_.clock.now()); });
  if (!before) co_return;
  runtime_.log.warn("renewal refused; the certificate before stays as it is",
                    {{"remote", from}, {"member", member}, {"reason", why.to_string()}});
  std::string detail = why.message;
  if (*before > 0) detail += "; " + std::to_string(*before) + " more before it";
  const store::AuditEntry entry{.kind = store::AuditKind::kRenewalRefused,
                                .by = store::AuditBy::kMember,
                                .from = std::move(from),
                                .member = std::move(member),
                                .detail = std::move(detail)};
  const WallTime when = runtime_.clock.wall_now();
  const Status kept = co_await runtime_.pool.run([&] { return store::AuditLog(journal_).append(entry, when); });
  if (!kept.ok()) {
    runtime_.log.error("a refused renewal is not in the audit log; nothing was issued",
                       {{"reason", kept.error().to_string()}});
  }
}

}  // namespace fluvial::coordinator
