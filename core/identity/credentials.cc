#include "core/identity/credentials.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/identity/errors.h"
#include "core/identity/files.h"
#include "core/identity/openssl_internal.h"
#include "core/identity/verify.h"

namespace fluvial::identity {
namespace {

constexpr std::uint64_t kTrustMax = std::uint64_t{1} << 53;

Result<std::uint64_t> load_number(const std::string& path, std::uint64_t max, std::string_view of_what) {
  const Result<std::string> text = read_small_file(path);
  if (!text.ok() && text.error().code == Code::kNotFound) return std::uint64_t{0};
  if (!text.ok()) return text.error();
  std::uint64_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [at, failure] = std::from_chars(text->data(), end, number);
  if (failure != std::errc() || std::string_view(at, end) != "\n" || number > max) {
    return Error{Code::kDataLoss, path + " holds no number of " + std::string(of_what)};
  }
  return number;
}

bool is_among(const Certificate& one, const std::vector<Certificate>& all) {
  return std::ranges::any_of(all, [&one](const Certificate& other) { return one.pem() == other.pem(); });
}

// The authorities, and those of the file that still find a place.
std::vector<Certificate> with_those_of(const std::string& path, std::vector<Certificate> authorities) {
  const auto before = Certificate::load_authorities(path);
  if (!before.ok()) return authorities;
  for (const Certificate& one : *before) {
    if (authorities.size() < kAuthoritiesMax && !is_among(one, authorities)) authorities.push_back(one);
  }
  return authorities;
}

}  // namespace

Status check_credentials(const Credentials& credentials, const std::string& where) {
  if (credentials.chain.empty()) return Error{Code::kDataLoss, where + " holds no certificate"};
  X509* const own = credentials.chain.front().native();
  if (X509_check_private_key(own, credentials.key.native()) != 1) {
    return openssl_error(where + " does not belong to the key.pem beside it", Code::kDataLoss);
  }
  if (const auto root = root_of(credentials.chain, credentials.authorities); !root.ok()) {
    return Error{Code::kDataLoss, where + " is not from an authority in the ca.pem beside it: " + root.error().message};
  }
  return {};
}

Status save_credentials(const Credentials& credentials, const std::string& folder) {
  FLUVIAL_TRY(make_private_folder(folder));
  FLUVIAL_TRY(credentials.key.save(folder + "/key.pem"));
  const std::string authorities = folder + "/ca.pem";
  const std::vector<Certificate> meanwhile = with_those_of(authorities, credentials.authorities);
  FLUVIAL_TRY(Certificate::save_chain(meanwhile, authorities));
  FLUVIAL_TRY(write_file(folder + "/enrolled_before", std::to_string(credentials.enrolled_before) + "\n", 0644));
  FLUVIAL_TRY(Certificate::save_chain(credentials.chain, folder + "/cert.pem"));
  if (meanwhile.size() > credentials.authorities.size()) {
    FLUVIAL_TRY(Certificate::save_chain(credentials.authorities, authorities));
  }
  return write_file(folder + "/trust", std::to_string(credentials.trust) + "\n", 0644);
}

Result<Credentials> load_credentials(const std::string& folder) {
  const std::string certificate_path = folder + "/cert.pem";
  FLUVIAL_ASSIGN(std::vector<Certificate> chain, Certificate::load_chain(certificate_path));
  FLUVIAL_ASSIGN(std::vector<Certificate> authorities, Certificate::load_authorities(folder + "/ca.pem"));
  FLUVIAL_ASSIGN(PrivateKey key, PrivateKey::load(folder + "/key.pem"));
  Credentials credentials{std::move(key), std::move(chain), std::move(authorities)};
  FLUVIAL_ASSIGN(credentials.enrolled_before,
                 load_number(folder + "/enrolled_before", kEnrolledBeforeMax, "enrolments"));
  FLUVIAL_ASSIGN(credentials.trust, load_number(folder + "/trust", kTrustMax, "a list of authorities"));
  FLUVIAL_TRY(check_credentials(credentials, certificate_path));
  FLUVIAL_TRY(settle_folder(folder));
  return credentials;
}

}  // namespace fluvial::identity
