// The messages of enrolment and renewal. The coordinator's answer: any bytes, and answers made of parts that are each
// right or wrong in a way of its own: a newcomer takes exactly the answer whose every part is right. A newcomer's
// request: nothing but the token's own secret and a request that proves a key gets a certificate. No error tells the
// secret.
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/identity/csr.h"
#include "core/identity/names.h"
#include "core/identity/seeded_key.h"
#include "core/identity/token.h"
#include "core/tree/enrol_client.h"
#include "core/tree/renewal.h"
#include "core/wire/mapping.h"
#include "core/wire/silence.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

using identity::Certificate;

constexpr std::string_view kName = "hospital-a";
constexpr std::string_view kSeveral = "clinic-*";

WallTime now() { return SystemClock().wall_now(); }

identity::PrivateKey key_of(unsigned char seed) {
  Digest digest{};
  digest[0] = std::byte{seed};
  return identity::seeded_key(digest).value();
}

// Made once: what an answer is put together from.
struct Parts {
  identity::CertificateAuthority authority = identity::CertificateAuthority::create_in_memory("ours", now()).value();
  identity::CertificateAuthority foreign = identity::CertificateAuthority::create_in_memory("theirs", now()).value();
  identity::PrivateKey key = key_of(1);
  identity::PrivateKey other_key = key_of(2);
  Buffer csr = identity::make_csr(key).value();
  identity::EnrolmentToken token = token_for(std::string(kName));
  identity::EnrolmentToken several = token_for(std::string(kSeveral));
  std::string several_name = identity::member_name(
      kSeveral, to_hex(identity::serial_of(identity::token_hash(several.secret), csr.span()).value()));
  // The first is the right one.
  std::vector<std::string> certificates = {
      issued(authority, key, {Role::kSite, NodeId(7), std::string(kName)}),
      issued(authority, other_key, {Role::kSite, NodeId(7), std::string(kName)}),
      issued(foreign, key, {Role::kSite, NodeId(7), std::string(kName)}),
      issued(authority, key, {Role::kAggregator, NodeId(7), std::string(kName)}),
      issued(authority, key, {Role::kSite, NodeId(8), std::string(kName)}),
      issued(authority, key, {Role::kSite, NodeId(7), "hospital-b"}),
      expired(),
      authority.certificate().pem(),
      "",
  };

  identity::EnrolmentToken token_for(const std::string& name) const {
    identity::EnrolmentToken made;
    made.secret = identity::Secret::random();
    made.pin = authority.pin();
    made.role = Role::kSite;
    made.name = name;
    made.expires_at = now() + std::chrono::hours(1);
    return made;
  }
  static std::string issued(const identity::CertificateAuthority& by, const identity::PrivateKey& of,
                            identity::Member member) {
    return by.issue(identity::make_csr(of)->span(), {.member = std::move(member)}, now())->pem();
  }
  std::string expired() const {
    const WallTime before = now() - std::chrono::hours(10);
    return authority
        .issue(csr.span(), {.member = {Role::kSite, NodeId(7), std::string(kName)}, .validity = std::chrono::hours(1)},
               before)
        ->pem();
  }
  static const Parts& get() {
    static const Parts parts;
    return parts;
  }
};

void check_enrolled(const tree::Enrolment& enrolled, const identity::EnrolmentToken& token) {
  FLUVIAL_CHECK(enrolled.member.role == token.role && identity::is_for(token.name, enrolled.member.name),
                "enrolled as somebody that the token does not name");
  FLUVIAL_CHECK(identity::check_region(enrolled.region).ok(), "a region that is none");
  FLUVIAL_CHECK(is_printable(enrolled.coordinator), "an address in one line");
}

// ---- answers -----------------------------------------------------------------------------------------------------

void accept(const v1::EnrolReply& reply, const identity::EnrolmentToken& token, std::optional<bool> expected) {
  const auto enrolled = tree::accept_enrolment(reply, Parts::get().key, token, "coordinator.example");
  if (expected)
    FLUVIAL_CHECK(enrolled.ok() == *expected, "an answer with a wrong part is taken, or a right one is not");
  if (enrolled.ok()) return check_enrolled(*enrolled, token);
  check_error(enrolled.error());
  const std::string quoted = reply.SerializeAsString();  // an answer that tells the secret told it itself
  check_keeps(enrolled.error(), as_text(token.secret.bytes()), quoted);
  check_keeps(enrolled.error(), to_hex(token.secret.bytes()), quoted);
}

v1::EnrolReply right_answer() {
  v1::EnrolReply reply;
  reply.set_certificate_pem(Parts::get().certificates.front());
  reply.set_ca_pem(Parts::get().authority.certificate().pem());
  reply.set_node(7);
  reply.set_name(std::string(kName));
  reply.set_role(v1::NODE_ROLE_SITE);
  reply.set_region("eu/west");
  reply.set_port(7443);
  return reply;
}

void read_answer(ByteSpan bytes) {
  v1::EnrolReply reply;
  if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  accept(reply, Parts::get().token, {});
  v1::EnrolReply changed = right_answer();
  changed.MergeFrom(reply);
  accept(changed, Parts::get().token, {});
}

// Of the right answer some parts are exchanged; whether it is still right is known.
void made_answer(Input& input) {
  const Parts& parts = Parts::get();
  v1::EnrolReply reply = right_answer();
  bool right = true;
  const std::size_t certificate = input.below(parts.certificates.size());
  reply.set_certificate_pem(parts.certificates[certificate]);
  right = certificate == 0 || certificate == 6;  // dates are looked at when it is shown
  switch (input.below(16)) {
    case 0: reply.set_ca_pem(parts.foreign.certificate().pem()), right = false; break;
    case 1: reply.set_ca_pem(input.text()), right = false; break;
    case 2:  // 8: what one of the certificates says
      reply.set_node(input.byte());
      right = certificate == 4 ? reply.node() == 8 : right && reply.node() == 7;
      break;
    case 3: reply.set_name(input.text()), right = right && reply.name() == kName; break;
    case 4:
      reply.set_role(static_cast<v1::NodeRole>(input.byte()));
      right = right && reply.role() == v1::NODE_ROLE_SITE;
      break;
    case 5: reply.set_region(input.text()), right = right && identity::check_region(reply.region()).ok(); break;
    case 6:
      reply.set_port(input.number<std::uint32_t>());
      right = right && reply.port() > 0 && reply.port() < 65'536;
      break;
    case 7:
      reply.set_enrolled_before(input.number<std::uint64_t>());
      right = right && reply.enrolled_before() <= identity::kEnrolledBeforeMax;
      break;
    case 8:
      reply.set_code(1 + input.byte());
      reply.set_message(input.text());
      right = false;
      break;
    case 9:  // the pinned one vouches for another
      reply.set_ca_pem(parts.authority.certificate().pem() + parts.foreign.certificate().pem());
      right = right || certificate == 2;
      break;
    default: break;
  }
  accept(reply, parts.token, right);
  if (certificate != 0) return;
  accept(reply, parts.several, false);  // it names another than token and key do
  v1::EnrolReply named = right_answer();
  named.set_name(parts.several_name);
  named.set_certificate_pem(Parts::issued(parts.authority, parts.key, {Role::kSite, NodeId(7), parts.several_name}));
  accept(named, parts.several, true);
}

// ---- renewals ----------------------------------------------------------------------------------------------------

void renew(const v1::RenewReply& reply, std::optional<bool> expected) {
  const Parts& parts = Parts::get();
  const auto own = Certificate::chain_from_pem(parts.certificates.front());
  const identity::Credentials before{parts.key, *own, {parts.authority.certificate()}};
  const auto renewed = tree::accept_renewal(reply, before, now());
  check_error(renewed);
  if (expected) FLUVIAL_CHECK(renewed.ok() == *expected, "a renewal with a wrong part is taken, or a right one is not");
  if (!renewed.ok()) return;
  const auto is = identity::identity_of(renewed->chain.front());
  const auto was = identity::identity_of(own->front());
  FLUVIAL_CHECK(is.ok() && is->role == was->role && is->node == was->node && is->name == was->name &&
                    is->key == was->key && is->not_after > now(),
                "renewed as somebody else, or with another key");
}

void read_renewal(Input& input) {
  const Parts& parts = Parts::get();
  v1::RenewReply reply;
  const std::size_t certificate = input.below(parts.certificates.size());
  reply.set_certificate_pem(parts.certificates[certificate]);
  reply.set_ca_pem(parts.authority.certificate().pem());
  bool right = certificate == 0;
  switch (input.below(8)) {
    case 0: reply.set_ca_pem(parts.foreign.certificate().pem()), right = certificate == 2; break;
    case 1: reply.set_ca_pem(input.text()), right = false; break;
    case 2: reply.set_code(1 + input.byte()), right = false; break;
    case 3: {
      v1::RenewReply more;
      const ByteSpan bytes = input.rest();
      if (more.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) reply.MergeFrom(more);
      return renew(reply, {});
    }
    default: break;
  }
  renew(reply, right);
}

// ---- requests ----------------------------------------------------------------------------------------------------

// The checks that a request passes at the coordinator before a certificate is made for it.
void ask(const std::string& secret_bytes, ByteSpan csr, bool is_own) {
  const Parts& parts = Parts::get();
  identity::TokenRecord record;
  record.secret_hash = identity::token_hash(parts.token.secret);
  record.id = identity::token_id(record.secret_hash);
  record.name = kName;
  record.expires_at = parts.token.expires_at;
  const Result<identity::Secret> secret = identity::Secret::from_bytes(as_byte_span(secret_bytes));
  check_error(secret);
  FLUVIAL_CHECK(secret.ok() == (secret_bytes.size() == 32), "a secret has one length");
  if (!secret.ok()) return;
  const Status redeemed = identity::redeem(record, *secret, now());
  FLUVIAL_CHECK(redeemed.ok() == is_own, "another secret than the token's, or not the token's");
  check_error(redeemed);
  if (!redeemed.ok()) return;
  const auto serial = identity::serial_of(record.secret_hash, csr);
  check_error(serial);
  if (!serial.ok()) return check_keeps(serial.error(), secret_bytes);
  const identity::Grant grant{.member = {Role::kSite, NodeId(7), std::string(kName)}, .serial = *serial};
  const auto issued = parts.authority.issue(csr, grant, now());
  FLUVIAL_CHECK(issued.ok() && issued->serial_hex() == to_hex(*serial), "a request that proves a key is refused");
}

void request(Input& input) {
  const Parts& parts = Parts::get();
  v1::EnrolRequest made;
  std::string secret(as_text(parts.token.secret.bytes()));
  const bool is_own = input.below(4) != 0;
  if (!is_own) secret[input.below(32)] ^= static_cast<char>(1 + input.byte() % 127);
  made.set_token_secret(secret);
  std::string csr(as_text(parts.csr.span()));
  for (std::size_t changes = input.below(4); changes > 0; --changes) {
    csr[input.number<std::uint16_t>() % csr.size()] = static_cast<char>(input.byte());
  }
  made.set_csr_der(input.below(4) == 0 ? std::string(as_text(input.rest())) : csr);
  v1::EnrolRequest read;
  FLUVIAL_CHECK(read.ParseFromString(made.SerializeAsString()), "a request is read as it was written");
  ask(read.token_secret(), as_byte_span(read.csr_der()), is_own);
}

void read_request(ByteSpan bytes) {
  v1::EnrolRequest read;
  if (!read.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  ask(read.token_secret(), as_byte_span(read.csr_der()), false);
}

void run(ByteSpan bytes) {
  wire::silence_protobuf();  // as whoever reads a frame does
  Input input(bytes);
  switch (input.below(5)) {
    case 0: return read_answer(input.rest());
    case 1: return read_request(input.rest());
    case 2: return request(input);
    case 4: return read_renewal(input);
    default: return made_answer(input);
  }
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
