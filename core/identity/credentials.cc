#include "core/identity/credentials.h"

#include "core/identity/errors.h"
#include "core/identity/files.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {

Status save_credentials(const Credentials& credentials, const std::string& folder) {
  FLUVIAL_TRY(make_private_folder(folder));
  FLUVIAL_TRY(credentials.key.save(folder + "/key.pem"));
  FLUVIAL_TRY(Certificate::save_chain({credentials.authority}, folder + "/ca.pem"));
  return Certificate::save_chain(credentials.chain, folder + "/cert.pem");
}

Result<Credentials> load_credentials(const std::string& folder) {
  const std::string certificate_path = folder + "/cert.pem";
  FLUVIAL_ASSIGN(std::vector<Certificate> chain, Certificate::load_chain(certificate_path));
  FLUVIAL_ASSIGN(std::vector<Certificate> authority, Certificate::load_chain(folder + "/ca.pem"));
  FLUVIAL_ASSIGN(PrivateKey key, PrivateKey::load(folder + "/key.pem"));
  if (X509_check_private_key(chain.front().native(), key.native()) != 1) {
    return openssl_error(certificate_path + " does not belong to the key.pem beside it", Code::kDataLoss);
  }
  if (X509_verify(chain.front().native(), X509_get0_pubkey(authority.front().native())) != 1) {
    return openssl_error(certificate_path + " is not from the authority in the ca.pem beside it", Code::kDataLoss);
  }
  return Credentials{std::move(key), std::move(chain), std::move(authority.front())};
}

}  // namespace fluvial::identity
