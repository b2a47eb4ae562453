#include "core/identity/issuer.h"

#include <openssl/pem.h>

#include <algorithm>

#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/errors.h"
#include "core/identity/openssl_internal.h"
#include "core/identity/verify.h"

namespace fluvial::identity {
namespace {

using ExtensionsPtr = std::unique_ptr<STACK_OF(X509_EXTENSION), decltype([](STACK_OF(X509_EXTENSION) * all) {
                                        sk_X509_EXTENSION_pop_free(all, X509_EXTENSION_free);
                                      })>;

Error refused(const std::string& where, const std::string& why) {
  return {Code::kFailedPrecondition, where + ": " + why};
}

Status check_authority(const Certificate& one, WallTime now, const std::string& where) {
  X509* const raw = one.native();
  const std::uint32_t flags = X509_get_extension_flags(raw);
  if ((flags & EXFLAG_INVALID) != 0) return refused(where, "its extensions are malformed");
  if ((flags & EXFLAG_CA) == 0) {
    return refused(where, "it is no authority's: it needs basicConstraints = critical,CA:TRUE");
  }
  if ((flags & EXFLAG_KUSAGE) == 0 || (X509_get_key_usage(raw) & KU_KEY_CERT_SIGN) == 0) {
    return refused(where, "it may not sign certificates: it needs keyUsage = critical,keyCertSign,cRLSign");
  }
  if (one.not_after() <= now) return refused(where, "it has expired");
  if (one.not_before() > now) return refused(where, "it is not valid yet; compare the clocks");
  return {};
}

// Of `chain`, the one at `index` must allow as many authorities below it as there are.
Status check_path_length(const std::vector<Certificate>& chain, std::size_t index, const std::string& where) {
  const long length = X509_get_pathlen(chain[index].native());
  if (length < 0 || static_cast<std::size_t>(length) >= index) return {};
  return refused(where, "its pathlen:" + std::to_string(length) + " allows fewer authorities below it than the " +
                            std::to_string(index) + " that there are");
}

// The verdict of the very check that members make, on a certificate that nobody gets.
Status try_out(const Issuer& issuer, WallTime now, const std::string& where) {
  const CertificateAuthority authority = CertificateAuthority::of(issuer);
  FLUVIAL_ASSIGN(const KeyAndCsr probe, make_key_and_csr());
  const Grant grant{{Role::kCoordinator, NodeId(1), "coordinator"}, std::chrono::hours(1)};
  FLUVIAL_ASSIGN(const std::vector<Certificate> chain, authority.issue_chain(probe.csr_der.span(), grant, now));
  const auto accepted = verify_chain(chain, authority.authorities(), now, {});
  if (accepted.ok()) return {};
  return refused(where, "members would not accept what it issues: " + accepted.error().message);
}

bool add_request_extension(STACK_OF(X509_EXTENSION) * all, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, nullptr, nullptr, nullptr, nullptr, 0);
  ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (extension == nullptr || sk_X509_EXTENSION_push(all, extension.get()) <= 0) return false;
  static_cast<void>(extension.release());  // the list's from here on
  return true;
}

}  // namespace

WallTime end_of(const std::vector<Certificate>& chain) {
  WallTime end = chain.front().not_after();
  for (const Certificate& one : chain) end = std::min(end, one.not_after());
  return end;
}

Status check_issuer(const Issuer& issuer, WallTime now, const std::string& where) {
  if (issuer.chain.empty() || issuer.chain.size() > 1 + kIntermediatesMax) {
    return refused(where, "expected 1 to 4 certificates from the issuing one to the root");
  }
  if (X509_check_private_key(issuer.chain.front().native(), issuer.key.native()) != 1) {
    return openssl_error(where + ": the certificate does not belong to the key", Code::kFailedPrecondition);
  }
  for (std::size_t i = 0; i < issuer.chain.size(); ++i) {
    const std::string which = i == 0                         ? where
                              : i + 1 == issuer.chain.size() ? where + ", its root"
                                                             : where + ", certificate " + std::to_string(i + 1);
    FLUVIAL_TRY(check_authority(issuer.chain[i], now, which));
    FLUVIAL_TRY(check_path_length(issuer.chain, i, which));
  }
  if (X509_self_signed(issuer.chain.back().native(), 1) != 1) {
    return openssl_error(where + ": the root is not self-signed", Code::kFailedPrecondition);
  }
  return try_out(issuer, now, where);
}

Result<Issuer> load_issuer(const IssuerFiles& files, WallTime now) {
  FLUVIAL_ASSIGN(std::vector<Certificate> chain, Certificate::load_chain(files.certificate));
  FLUVIAL_ASSIGN(const std::vector<Certificate> roots, Certificate::load_chain(files.root));
  if (roots.size() != 1) return refused(files.root, "expected one certificate, the root's");
  // The file of the issuing certificate may hold the root as well.
  if (chain.back().pem() != roots.front().pem()) chain.push_back(roots.front());
  FLUVIAL_ASSIGN(PrivateKey key, PrivateKey::load(files.key));
  Issuer issuer{std::move(key), std::move(chain)};
  FLUVIAL_TRY(check_issuer(issuer, now, files.certificate));
  return issuer;
}

Result<std::string> make_authority_request(const PrivateKey& key, const std::string& federation) {
  FLUVIAL_TRY(check_node_name(federation));
  const RequestPtr request(X509_REQ_new());
  const ExtensionsPtr wanted(sk_X509_EXTENSION_new_null());
  if (request == nullptr || wanted == nullptr) return openssl_error("cannot make a certificate request");
  X509_NAME* const name = X509_REQ_get_subject_name(request.get());
  const auto add = [name](const char* field, std::string_view value) {
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_ASC, as_uchar(value.data()), static_cast<int>(value.size()),
                                      -1, 0) == 1;
  };
  const bool good = add("O", "Fluvial") && add("OU", "authority") && add("CN", federation) &&
                    add_request_extension(wanted.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    add_request_extension(wanted.get(), NID_key_usage, "critical,keyCertSign,cRLSign") &&
                    X509_REQ_add_extensions(request.get(), wanted.get()) == 1 &&
                    X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
                    X509_REQ_set_pubkey(request.get(), key.native()) == 1 &&
                    X509_REQ_sign(request.get(), key.native(), signing_digest(key.native())) > 0;
  const BioPtr pem(BIO_new(BIO_s_mem()));
  if (!good || pem == nullptr || PEM_write_bio_X509_REQ(pem.get(), request.get()) != 1) {
    return openssl_error("cannot make a certificate request");
  }
  return std::string(bio_text(pem.get()));
}

}  // namespace fluvial::identity
