#include "core/identity/sealed_key.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>

// cms.h declares its PEM functions only if pem.h was included before it.
#include <openssl/cms.h>

#include <algorithm>
#include <array>

#include "core/identity/errors.h"
#include "core/identity/files.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

using AlgorithmPtr = std::unique_ptr<X509_ALGOR, FreeWith<X509_ALGOR_free>>;
using SealedPtr = std::unique_ptr<X509_SIG, FreeWith<X509_SIG_free>>;
using PlainPtr = std::unique_ptr<PKCS8_PRIV_KEY_INFO, FreeWith<PKCS8_PRIV_KEY_INFO_free>>;
using MessagePtr = std::unique_ptr<CMS_ContentInfo, FreeWith<CMS_ContentInfo_free>>;
using Pbe2Ptr = std::unique_ptr<PBE2PARAM, FreeWith<PBE2PARAM_free>>;
using ScryptPtr = std::unique_ptr<SCRYPT_PARAMS, FreeWith<SCRYPT_PARAMS_free>>;

// OWASP's Password Storage Cheat Sheet's choice for scrypt within 16 MiB; OpenSSL's readers refuse twice as much.
constexpr std::uint64_t kScryptN = 1 << 14;
constexpr std::uint64_t kScryptR = 8;
constexpr std::uint64_t kScryptP = 5;
constexpr std::uint64_t kScryptWorkMax = 16 * kScryptN * kScryptR * kScryptP;  // a file could ask for days of work
constexpr int kSaltBytes = 16;
constexpr int kRsaBitsMin = 2048;

Status check_passphrase(std::string_view passphrase) {
  if (passphrase.size() >= kPassphraseBytesMin && passphrase.size() <= kPassphraseBytesMax) return {};
  return Error{Code::kInvalidArgument, "a passphrase has " + std::to_string(passphrase.size()) + " bytes: expected " +
                                           std::to_string(kPassphraseBytesMin) + " to " +
                                           std::to_string(kPassphraseBytesMax)};
}

// Hands a passphrase to a PEM reader; with none it would ask on the terminal.
int give_passphrase(char* into, int size, int, void* passphrase) {
  const auto& text = *static_cast<const std::string_view*>(passphrase);
  if (text.empty() || text.size() > static_cast<std::size_t>(size)) return -1;
  std::copy(text.begin(), text.end(), into);
  return static_cast<int>(text.size());
}

Result<PrivateKey> as_private_key(KeyPtr key) {
  FLUVIAL_TRY(check_key_type(key.get()));
  return PrivateKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

// Whether opening the key costs about as much as sealing it did.
bool is_affordable(const X509_SIG* sealed) {
  const X509_ALGOR* outer = nullptr;
  X509_SIG_get0(sealed, &outer, nullptr);
  const ASN1_OBJECT* kind = nullptr;
  int type = 0;
  const void* parameter = nullptr;
  X509_ALGOR_get0(&kind, &type, &parameter, outer);
  if (OBJ_obj2nid(kind) != NID_pbes2 || type != V_ASN1_SEQUENCE) return false;
  const Pbe2Ptr pbe(
      static_cast<PBE2PARAM*>(ASN1_item_unpack(static_cast<const ASN1_STRING*>(parameter), ASN1_ITEM_rptr(PBE2PARAM))));
  if (pbe == nullptr) return false;
  X509_ALGOR_get0(&kind, &type, &parameter, pbe->keyfunc);
  if (OBJ_obj2nid(kind) != NID_id_scrypt || type != V_ASN1_SEQUENCE) return false;
  const ScryptPtr scrypt(static_cast<SCRYPT_PARAMS*>(
      ASN1_item_unpack(static_cast<const ASN1_STRING*>(parameter), ASN1_ITEM_rptr(SCRYPT_PARAMS))));
  std::uint64_t work = 1;
  if (scrypt == nullptr) return false;
  for (const ASN1_INTEGER* factor : {scrypt->costParameter, scrypt->blockSize, scrypt->parallelizationParameter}) {
    std::uint64_t value = 0;
    if (ASN1_INTEGER_get_uint64(&value, factor) != 1 || value == 0 || value > kScryptWorkMax / work) return false;
    work *= value;
  }
  return true;
}

// Chooses how the content key is encrypted: OpenSSL's defaults are PKCS #1 v1.5 and SHA-1.
bool choose_key_transport(CMS_RecipientInfo* recipient) {
  EVP_PKEY_CTX* const context = CMS_RecipientInfo_get0_pkey_ctx(recipient);
  if (context == nullptr) return false;
  if (CMS_RecipientInfo_type(recipient) == CMS_RECIPINFO_TRANS) {
    return EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_OAEP_PADDING) > 0 &&
           EVP_PKEY_CTX_set_rsa_oaep_md(context, EVP_sha256()) > 0;
  }
  return EVP_PKEY_CTX_set_ecdh_kdf_md(context, EVP_sha256()) > 0;
}

Result<std::string> text_of(BIO* bio, bool written, const char* what) {
  if (!written) return openssl_error(what);
  return std::string(bio_text(bio));
}

}  // namespace

Result<std::string> seal_with_passphrase(const PrivateKey& key, std::string_view passphrase) {
  FLUVIAL_TRY(check_passphrase(passphrase));
  std::array<unsigned char, kSaltBytes> salt = {};
  if (RAND_bytes(salt.data(), kSaltBytes) != 1) return openssl_error("no random bytes");
  AlgorithmPtr algorithm(
      PKCS5_pbe2_set_scrypt(EVP_aes_256_cbc(), salt.data(), kSaltBytes, nullptr, kScryptN, kScryptR, kScryptP));
  const PlainPtr plain(EVP_PKEY2PKCS8(key.native()));
  if (algorithm == nullptr || plain == nullptr) return openssl_error("cannot prepare a key's encryption");
  const SealedPtr sealed(
      PKCS8_set0_pbe(passphrase.data(), static_cast<int>(passphrase.size()), plain.get(), algorithm.get()));
  if (sealed == nullptr) return openssl_error("cannot encrypt a key");
  [[maybe_unused]] const auto* taken = algorithm.release();  // owned by the sealed key now
  const BioPtr pem(BIO_new(BIO_s_mem()));
  return text_of(pem.get(), PEM_write_bio_PKCS8(pem.get(), sealed.get()) == 1, "cannot encode an encrypted key");
}

Result<std::string> leave_unsealed(const PrivateKey& key) {
  const BioPtr pem(BIO_new(BIO_s_secmem()));
  return text_of(pem.get(),
                 PEM_write_bio_PKCS8PrivateKey(pem.get(), key.native(), nullptr, nullptr, 0, nullptr, nullptr) == 1,
                 "cannot encode a private key");
}

Result<std::string> seal_for(const PrivateKey& key, const Certificate& recipient) {
  EVP_PKEY* const theirs = X509_get0_pubkey(recipient.native());
  const int type = theirs == nullptr ? 0 : EVP_PKEY_get_base_id(theirs);
  if (type != EVP_PKEY_EC && (type != EVP_PKEY_RSA || EVP_PKEY_get_bits(theirs) < kRsaBitsMin)) {
    return Error{Code::kInvalidArgument,
                 "nothing can be encrypted for this certificate's key: expected RSA of 2048 bits or more, or EC"};
  }
  FLUVIAL_ASSIGN(std::string plain, leave_unsealed(key));
  const MessagePtr message(CMS_encrypt(nullptr, nullptr, EVP_aes_256_gcm(), CMS_PARTIAL | CMS_BINARY));
  CMS_RecipientInfo* const added =
      message == nullptr ? nullptr : CMS_add1_recipient_cert(message.get(), recipient.native(), CMS_KEY_PARAM);
  const bool good = added != nullptr && choose_key_transport(added) &&
                    CMS_final(message.get(), bio_over(plain).get(), nullptr, CMS_BINARY) == 1;
  wipe_text(plain);
  if (!good) return openssl_error("cannot encrypt a key for the certificate");
  const BioPtr pem(BIO_new(BIO_s_mem()));
  return text_of(pem.get(), PEM_write_bio_CMS(pem.get(), message.get()) == 1, "cannot encode an encrypted key");
}

Result<PrivateKey> open_with_passphrase(std::string_view sealed, std::string_view passphrase) {
  FLUVIAL_TRY(check_passphrase(passphrase));
  const SealedPtr parsed(PEM_read_bio_PKCS8(bio_over(sealed).get(), nullptr, nullptr, nullptr));
  if (parsed == nullptr) return openssl_error("no encrypted key (PKCS #8)", Code::kDataLoss);
  if (!is_affordable(parsed.get())) return Error{Code::kDataLoss, "the key is not encrypted as a backup's is"};
  const PlainPtr plain(PKCS8_decrypt(parsed.get(), passphrase.data(), static_cast<int>(passphrase.size())));
  if (plain == nullptr) {
    ERR_clear_error();
    return Error{Code::kUnauthenticated, "wrong passphrase"};
  }
  KeyPtr key(EVP_PKCS82PKEY(plain.get()));
  if (key == nullptr) return openssl_error("wrong passphrase, or a damaged key", Code::kUnauthenticated);
  return as_private_key(std::move(key));
}

Result<PrivateKey> open_unsealed(std::string_view text) {
  std::string_view none;
  KeyPtr key(PEM_read_bio_PrivateKey(bio_over(text).get(), nullptr, give_passphrase, &none));
  if (key == nullptr) return openssl_error("no private key (PEM, without passphrase)", Code::kDataLoss);
  return as_private_key(std::move(key));
}

Result<PrivateKey> open_for(std::string_view sealed, const std::string& path, std::string_view passphrase) {
  FLUVIAL_ASSIGN(std::string text, read_small_file(path));
  const KeyPtr theirs(PEM_read_bio_PrivateKey(bio_over(text).get(), nullptr, give_passphrase, &passphrase));
  wipe_text(text);
  if (theirs == nullptr) {
    return openssl_error("cannot open the recipient's private key " + path +
                             " (PEM; is it encrypted? Then give its "
                             "passphrase, too)",
                         Code::kUnauthenticated);
  }
  const MessagePtr message(PEM_read_bio_CMS(bio_over(sealed).get(), nullptr, nullptr, nullptr));
  if (message == nullptr) return openssl_error("no encrypted key (CMS)", Code::kDataLoss);
  const BioPtr plain(BIO_new(BIO_s_secmem()));
  if (CMS_decrypt(message.get(), theirs.get(), nullptr, nullptr, plain.get(), 0) != 1) {
    return openssl_error("the key was not encrypted for the owner of " + path, Code::kUnauthenticated);
  }
  return open_unsealed(bio_text(plain.get()));
}

Status check_key_of(const PrivateKey& key, const Certificate& authority) {
  if (X509_check_private_key(authority.native(), key.native()) == 1) return {};
  ERR_clear_error();
  return Error{Code::kDataLoss, "the private key is not that of the authority's certificate"};
}

Result<std::string> read_passphrase_file(const std::string& path) {
  FLUVIAL_ASSIGN(std::string text, read_small_file(path));
  std::string line = text.substr(0, text.find_first_of("\r\n"));
  wipe_text(text);
  if (line.empty() || line.size() > kPassphraseBytesMax) {
    wipe_text(line);
    return Error{Code::kInvalidArgument, path + ": its first line is no passphrase: it is empty, or too long"};
  }
  return line;
}

Result<std::string> ask_passphrase(const std::string& prompt, bool twice) {
  std::array<char, kPassphraseBytesMax + 1> typed = {};
  const int size = static_cast<int>(typed.size());
  const int failed = EVP_read_pw_string_min(typed.data(), 0, size - 1, prompt.c_str(), twice ? 1 : 0);
  std::string text(typed.data());
  OPENSSL_cleanse(typed.data(), typed.size());
  if (failed != 0) {
    wipe_text(text);
    return openssl_error("no passphrase was read", Code::kUnavailable);
  }
  return text;
}

}  // namespace fluvial::identity
