#include "core/identity/key.h"

#include <openssl/ec.h>
#include <openssl/pem.h>

#include "core/identity/errors.h"
#include "core/identity/files.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

// OpenSSL would otherwise ask on the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

}  // namespace

Result<PrivateKey> PrivateKey::generate() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return openssl_error("cannot make a P-256 key");
  return PrivateKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

Result<PrivateKey> PrivateKey::load(const std::string& path) {
  FLUVIAL_ASSIGN(std::string text, read_private_file(path));
  KeyPtr key(PEM_read_bio_PrivateKey(bio_over(text).get(), nullptr, no_passphrase, nullptr));
  wipe_text(text);
  if (key == nullptr) return openssl_error("no private key (PEM, without passphrase) in " + path, Code::kDataLoss);
  if (const Status good = check_key_type(key.get()); !good.ok()) {
    return Error{good.error().code, path + ": " + good.error().message};
  }
  return PrivateKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

Status PrivateKey::save(const std::string& path) const {
  const BioPtr pem(BIO_new(BIO_s_secmem()));  // wiped when freed
  if (pem == nullptr || PEM_write_bio_PrivateKey(pem.get(), native(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return openssl_error("cannot encode a private key");
  }
  return write_file(path, bio_text(pem.get()), 0600);
}

}  // namespace fluvial::identity
