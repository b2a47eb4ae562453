#include "core/identity/tls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/err.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/identity/errors.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

using ContextPtr = std::shared_ptr<SSL_CTX>;

constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kGroups = "X25519:P-256";
constexpr const char* kSignatures = "ECDSA+SHA256:ed25519";
constexpr std::string_view kPinOffer = "fluvial-pin/";
constexpr std::size_t kPinOfferDigits = 32;
constexpr long kPeerChainBytesMax = 16 * 1024;  // OpenSSL takes 100 KiB from a stranger

SSL* ssl_of(X509_STORE_CTX* store) {
  return static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
}

Certificate share(X509* certificate) {
  X509_up_ref(certificate);
  return Certificate(std::shared_ptr<X509>(certificate, X509_free));
}

std::string claimed_by(X509* certificate) {
  if (certificate == nullptr) return "the peer's certificate is refused";
  const auto claimed = identity_of(share(certificate));
  return claimed.ok() ? "the certificate for " + describe(*claimed) + " is refused"
                      : "the peer's certificate is refused";
}

// Only writes the verdict down; OpenSSL has decided.
int note_verdict(int accepted, X509_STORE_CTX* store) {
  if (accepted != 1) {
    const int error = X509_STORE_CTX_get_error(store);
    X509* const current = X509_STORE_CTX_get_current_cert(store);
    set_verdict(ssl_of(store), claimed_by(current) + ": " + X509_verify_cert_error_string(error));
  }
  return accepted;
}

// One of the wire form's list of protocols.
std::string alpn_entry(std::string_view protocol) {
  return std::string(1, static_cast<char>(protocol.size())) + std::string(protocol);
}

// How an enrolment client says in its offer which authority it expects.
std::string pin_offer(std::string_view pin) {
  return std::string(kPinOffer) + std::string(pin.substr(pin.find(':') + 1, kPinOfferDigits));
}

std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  while (!list.empty()) {
    const auto size = std::min<std::size_t>(static_cast<unsigned char>(list.front()), list.size() - 1);
    entries.push_back(list.substr(1, size));
    list.remove_prefix(1 + size);
  }
  return entries;
}

// Of an enrolment port: what it shows a client that offers the key.
using ByPin = std::map<std::string, ContextPtr, std::less<>>;

void free_by_pin(void*, void* data, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<ByPin*>(data); }

int by_pin_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_by_pin);
  return index;
}

void show_who_is_named(SSL* ssl, std::string_view offered) {
  const auto* const by_pin = static_cast<const ByPin*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), by_pin_index()));
  if (by_pin == nullptr || offered.size() < 2) return;
  for (const std::string_view entry : entries_of(offered.substr(2))) {
    const auto found = by_pin->find(entry);
    if (found == by_pin->end()) continue;
    SSL_set_SSL_CTX(ssl, found->second.get());
    return;
  }
}

// Without this a client that offers no protocol at all would never meet select_alpn().
int require_alpn_offer(SSL* ssl, int* alert, void*) {
  const unsigned char* data = nullptr;
  std::size_t size = 0;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &data, &size) == 1) {
    show_who_is_named(ssl, {reinterpret_cast<const char*>(data), size});
    return SSL_CLIENT_HELLO_SUCCESS;
  }
  set_verdict(ssl, fmt::format("the client offers no application protocol; {} is required", required_alpn(ssl)));
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

int select_alpn(SSL* ssl, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
                unsigned int offered_size, void*) {
  const std::string_view wanted = required_alpn(ssl);
  for (const std::string_view entry : entries_of({reinterpret_cast<const char*>(offered), offered_size})) {
    if (!stands_for(entry, wanted)) continue;
    *out = as_uchar(entry.data());
    *out_size = static_cast<unsigned char>(entry.size());
    return SSL_TLSEXT_ERR_OK;
  }
  set_verdict(ssl, fmt::format("the client does not offer the application protocol {}", wanted));
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

Status offer(SSL_CTX* context, const std::string& list) {
  if (SSL_CTX_set_alpn_protos(context, as_uchar(list.data()), static_cast<unsigned int>(list.size())) != 0) {
    return openssl_error("cannot set the application protocol");
  }
  return {};
}

Status require_protocol(SSL_CTX* context, const std::string_view& protocol, bool server) {
  set_required_alpn(context, protocol);
  if (!server) return offer(context, alpn_entry(protocol));
  SSL_CTX_set_client_hello_cb(context, require_alpn_offer, nullptr);
  SSL_CTX_set_alpn_select_cb(context, select_alpn, nullptr);
  return {};
}

// What all four contexts share.
Result<ContextPtr> new_context(const std::string_view& protocol, bool server) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(server ? TLS_server_method() : TLS_client_method()), SSL_CTX_free);
  SSL_CTX* const raw = context.get();
  if (raw == nullptr) return openssl_error("cannot make a TLS context");
  SSL_CTX_set_security_level(raw, kSecurityLevel);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(raw, SSL_MODE_NO_AUTO_CHAIN);  // send the chain as given, not the root that every member has
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_cert_list(raw, kPeerChainBytesMax);
  if (SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(raw, TLS1_3_VERSION) != 1 || SSL_CTX_set_num_tickets(raw, 0) != 1 ||
      SSL_CTX_set_ciphersuites(raw, kCiphers) != 1 || SSL_CTX_set1_groups_list(raw, kGroups) != 1 ||
      SSL_CTX_set1_sigalgs_list(raw, kSignatures) != 1) {
    return openssl_error("cannot configure TLS");
  }
  FLUVIAL_TRY(require_protocol(raw, protocol, server));
  return context;
}

Status use_credentials(SSL_CTX* context, const Credentials& credentials, bool send_authorities) {
  if (credentials.chain.empty()) return Error{Code::kInvalidArgument, "credentials without a certificate"};
  bool good = SSL_CTX_use_certificate(context, credentials.chain.front().native()) == 1 &&
              SSL_CTX_use_PrivateKey(context, credentials.key.native()) == 1 && SSL_CTX_check_private_key(context) == 1;
  for (std::size_t i = 1; good && i < credentials.chain.size(); ++i) {
    good = SSL_CTX_add1_chain_cert(context, credentials.chain[i].native()) == 1;
  }
  for (std::size_t i = 0; good && send_authorities && i < credentials.authorities.size(); ++i) {
    good = SSL_CTX_add1_chain_cert(context, credentials.authorities[i].native()) == 1;
  }
  if (!good) return openssl_error("cannot use this certificate and key", Code::kInvalidArgument);
  return {};
}

// The other side's certificate must lead to one of these; its purpose (client or server) follows from the context.
Status verify_against(SSL_CTX* context, const std::vector<Certificate>& authorities) {
  bool good = X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_X509_STRICT) == 1;
  for (const Certificate& authority : authorities) {
    good = good && X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.native()) == 1;
  }
  if (!good) return openssl_error("cannot trust the authorities' certificates");
  SSL_CTX_set_verify_depth(context, kIntermediatesMax);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, note_verdict);
  return {};
}

Result<std::shared_ptr<const TlsContext>> member_context(const Credentials& credentials, bool server,
                                                         const std::string_view& protocol = kMemberAlpn) {
  FLUVIAL_ASSIGN(ContextPtr context, new_context(protocol, server));
  FLUVIAL_TRY(use_credentials(context.get(), credentials, false));
  FLUVIAL_TRY(verify_against(context.get(), credentials.authorities));
  return std::make_shared<const TlsContext>(std::move(context), server);
}

using Pins = std::vector<std::string>;

void free_pins(void*, void* data, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<Pins*>(data); }

int pins_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_pins);
  return index;
}

int refuse(X509_STORE_CTX* store, int error, std::string verdict) {
  X509_STORE_CTX_set_error(store, error);
  set_verdict(ssl_of(store), std::move(verdict));
  return 0;
}

// The whole check of an enrolment server: it must show the authority that the pin names, a chain up to it that holds
// for a server, and a coordinator's name. Until then nothing is trusted, so this stands in for OpenSSL's own check.
int verify_by_pin(X509_STORE_CTX* store, void*) {
  SSL* const ssl = ssl_of(store);
  const auto& pins = *static_cast<const Pins*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), pins_index()));
  X509* const leaf = X509_STORE_CTX_get0_cert(store);
  STACK_OF(X509)* const shown = X509_STORE_CTX_get0_untrusted(store);
  std::string shown_pins;
  const StackPtr trusted(sk_X509_new_null());
  bool ready = trusted != nullptr;
  for (int i = 0; i < sk_X509_num(shown); ++i) {
    X509* const candidate = sk_X509_value(shown, i);
    if (X509_check_ca(candidate) != 1) continue;
    const std::string pin = pin_of(share(candidate));
    shown_pins += (shown_pins.empty() ? "" : ", ") + pin;
    if (std::ranges::find(pins, pin) != pins.end()) ready = ready && sk_X509_push(trusted.get(), candidate) > 0;
  }
  if (ready && sk_X509_num(trusted.get()) == 0) {
    const std::string expected = fmt::format("{}", fmt::join(pins, " or "));
    return refuse(store, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN,
                  shown_pins.empty()
                      ? "the server shows no authority; expected is " + expected
                      : fmt::format("wrong authority: the server shows {}, expected is {}", shown_pins, expected));
  }
  if (ready) X509_STORE_CTX_set0_trusted_stack(store, trusted.get());
  const int verified = ready ? X509_verify_cert(store) : 0;
  X509_STORE_CTX_set0_trusted_stack(store, nullptr);
  if (verified != 1) {
    const int error = ready ? X509_STORE_CTX_get_error(store) : X509_V_ERR_OUT_OF_MEM;
    return refuse(store, error, claimed_by(leaf) + ": " + X509_verify_cert_error_string(error));
  }
  const auto identity = identity_of(share(leaf));
  if (!identity.ok()) return refuse(store, X509_V_ERR_CERT_REJECTED, identity.error().message);
  if (const Status role = may_speak_as(*identity, Role::kCoordinator); !role.ok()) {
    return refuse(store, X509_V_ERR_CERT_REJECTED, role.error().message);
  }
  return 1;
}

Result<ContextPtr> enrolment_context(const Credentials& credentials) {
  FLUVIAL_ASSIGN(ContextPtr context, new_context(kEnrolAlpn, true));
  FLUVIAL_TRY(use_credentials(context.get(), credentials, true));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  return context;
}

}  // namespace

void FreeSsl::operator()(SSL* ssl) const { SSL_free(ssl); }

Result<std::shared_ptr<const TlsContext>> TlsContext::member_server(const Credentials& credentials) {
  return member_context(credentials, true);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::member_client(const Credentials& credentials) {
  return member_context(credentials, false);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::admin_server(const Credentials& credentials) {
  return member_context(credentials, true, kAdminAlpn);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::admin_client(const Credentials& credentials) {
  return member_context(credentials, false, kAdminAlpn);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::enrol_server(const Credentials& credentials) {
  FLUVIAL_ASSIGN(ContextPtr context, enrolment_context(credentials));
  return std::make_shared<const TlsContext>(std::move(context), true);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::enrol_server(const std::vector<Credentials>& credentials) {
  ContextPtr first;
  auto by_pin = std::make_unique<ByPin>();
  for (const Credentials& one : credentials) {
    FLUVIAL_ASSIGN(ContextPtr context, enrolment_context(one));
    if (first == nullptr) first = context;
    if (context == first) continue;  // it is shown without being named, and may not own itself
    for (const Certificate& authority : one.authorities) by_pin->emplace(pin_offer(pin_of(authority)), context);
  }
  if (first == nullptr) return Error{Code::kInvalidArgument, "an enrolment port without credentials"};
  SSL_CTX_set_ex_data(first.get(), by_pin_index(), by_pin.release());
  return std::make_shared<const TlsContext>(std::move(first), true);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::enrol_client(std::string_view authority_pin) {
  return enrol_client(std::vector<std::string>{std::string(authority_pin)});
}

Result<std::shared_ptr<const TlsContext>> TlsContext::enrol_client(const std::vector<std::string>& authority_pins) {
  if (authority_pins.empty() || authority_pins.size() > kAuthoritiesMax) {
    return Error{Code::kInvalidArgument, "an enrolment needs the pins of 1 to 8 authorities"};
  }
  FLUVIAL_ASSIGN(ContextPtr context, new_context(kEnrolAlpn, false));
  std::string offered = alpn_entry(kEnrolAlpn);
  for (const std::string& pin : authority_pins) {
    FLUVIAL_TRY(check_pin(pin));
    offered += alpn_entry(pin_offer(pin));
  }
  FLUVIAL_TRY(offer(context.get(), offered));
  SSL_CTX_set_ex_data(context.get(), pins_index(), new Pins(authority_pins));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_verify_depth(context.get(), kIntermediatesMax);
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context.get()), X509_V_FLAG_X509_STRICT);
  SSL_CTX_set_cert_verify_callback(context.get(), verify_by_pin, nullptr);
  return std::make_shared<const TlsContext>(std::move(context), false);
}

Result<SslPtr> TlsContext::new_session() const {
  SslPtr ssl(SSL_new(native()));
  if (ssl == nullptr) return openssl_error("cannot start a TLS session");
  if (is_server_) {
    SSL_set_accept_state(ssl.get());
  } else {
    SSL_set_connect_state(ssl.get());
  }
  return ssl;
}

}  // namespace fluvial::identity
