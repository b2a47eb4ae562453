#include "core/identity/credentials.h"

#include <charconv>
#include <string_view>

#include "core/identity/errors.h"
#include "core/identity/files.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

Result<std::uint64_t> load_enrolled_before(const std::string& path) {
  const Result<std::string> text = read_small_file(path);
  if (!text.ok() && text.error().code == Code::kNotFound) return std::uint64_t{0};
  if (!text.ok()) return text.error();
  std::uint64_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [at, failure] = std::from_chars(text->data(), end, number);
  if (failure != std::errc() || std::string_view(at, end) != "\n" || number > kEnrolledBeforeMax) {
    return Error{Code::kDataLoss, path + " holds no number of enrolments"};
  }
  return number;
}

}  // namespace

Status check_credentials(const Credentials& credentials, const std::string& where) {
  if (credentials.chain.empty()) return Error{Code::kDataLoss, where + " holds no certificate"};
  X509* const own = credentials.chain.front().native();
  if (X509_check_private_key(own, credentials.key.native()) != 1) {
    return openssl_error(where + " does not belong to the key.pem beside it", Code::kDataLoss);
  }
  if (X509_verify(own, X509_get0_pubkey(credentials.authority.native())) != 1) {
    return openssl_error(where + " is not from the authority in the ca.pem beside it", Code::kDataLoss);
  }
  return {};
}

Status save_credentials(const Credentials& credentials, const std::string& folder) {
  FLUVIAL_TRY(make_private_folder(folder));
  FLUVIAL_TRY(credentials.key.save(folder + "/key.pem"));
  FLUVIAL_TRY(Certificate::save_chain({credentials.authority}, folder + "/ca.pem"));
  FLUVIAL_TRY(write_file(folder + "/enrolled_before", std::to_string(credentials.enrolled_before) + "\n", 0644));
  return Certificate::save_chain(credentials.chain, folder + "/cert.pem");
}

Result<Credentials> load_credentials(const std::string& folder) {
  const std::string certificate_path = folder + "/cert.pem";
  FLUVIAL_ASSIGN(std::vector<Certificate> chain, Certificate::load_chain(certificate_path));
  FLUVIAL_ASSIGN(std::vector<Certificate> authority, Certificate::load_chain(folder + "/ca.pem"));
  FLUVIAL_ASSIGN(PrivateKey key, PrivateKey::load(folder + "/key.pem"));
  Credentials credentials{std::move(key), std::move(chain), std::move(authority.front())};
  FLUVIAL_ASSIGN(credentials.enrolled_before, load_enrolled_before(folder + "/enrolled_before"));
  FLUVIAL_TRY(check_credentials(credentials, certificate_path));
  FLUVIAL_TRY(settle_folder(folder));
  return credentials;
}

}  // namespace fluvial::identity
