#include "core/identity/verify.h"

#include <openssl/err.h>

#include <algorithm>
#include <optional>

#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

using StorePtr = std::unique_ptr<X509_STORE, FreeWith<X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, FreeWith<X509_STORE_CTX_free>>;

struct Purpose {
  std::optional<int> id;       // none: any
  std::optional<WallTime> at;  // none: whatever the dates
};

Error refused(std::string why) {
  ERR_clear_error();
  return {Code::kUnauthenticated, std::move(why)};
}

// The authority at the end of the path.
Result<Certificate> check_path(const std::vector<Certificate>& chain, const std::vector<Certificate>& authorities,
                               Purpose purpose) {
  if (chain.empty() || chain.size() > kChainMax) return refused("not a chain of 1 to 4 certificates");
  const StorePtr store(X509_STORE_new());
  const StackPtr between(sk_X509_new_null());
  const StoreContextPtr context(X509_STORE_CTX_new());
  bool ready = store != nullptr && between != nullptr && context != nullptr;
  for (const Certificate& authority : authorities) {
    ready = ready && X509_STORE_add_cert(store.get(), authority.native()) == 1;
  }
  for (std::size_t i = 1; i < chain.size(); ++i) {
    ready = ready && sk_X509_push(between.get(), chain[i].native()) > 0;
  }
  ready = ready && X509_STORE_CTX_init(context.get(), store.get(), chain.front().native(), between.get()) == 1;
  if (!ready) return refused("the certificates cannot be checked");
  X509_VERIFY_PARAM* const param = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_auth_level(param, kSecurityLevel);
  X509_VERIFY_PARAM_set_depth(param, kIntermediatesMax);
  X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
  if (purpose.id) X509_VERIFY_PARAM_set_purpose(param, *purpose.id);
  if (purpose.at) {
    X509_VERIFY_PARAM_set_time(param, to_time_t(*purpose.at));
  } else {
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_NO_CHECK_TIME);
  }
  if (X509_verify_cert(context.get()) != 1) {
    return refused(X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
  }
  STACK_OF(X509)* const path = X509_STORE_CTX_get0_chain(context.get());
  X509* const root = sk_X509_value(path, sk_X509_num(path) - 1);
  X509_up_ref(root);
  return Certificate(std::shared_ptr<X509>(root, X509_free));
}

}  // namespace

Result<PeerIdentity> verify_chain(const std::vector<Certificate>& chain, const std::vector<Certificate>& authorities,
                                  WallTime now, Ended ended) {
  if (chain.empty()) return refused("no certificate");
  FLUVIAL_ASSIGN(PeerIdentity identity, identity_of(chain.front()));
  // At its very end a certificate has ended.
  const WallTime last = chain.front().not_after() - std::chrono::seconds(1);
  const bool as_it_stood = last < now && now - last <= ended.at_most;
  const WallTime at = as_it_stood ? last : now;
  const bool serves = identity.role == Role::kAggregator || identity.role == Role::kCoordinator;
  const auto check = [&](int purpose) -> Status {
    const auto root = check_path(chain, authorities, {purpose, at});
    if (root.ok()) return {};
    return refused("the certificate for " + describe(identity) + " is refused: " + root.error().message);
  };
  FLUVIAL_TRY(check(X509_PURPOSE_SSL_CLIENT));
  if (serves) FLUVIAL_TRY(check(X509_PURPOSE_SSL_SERVER));
  return identity;
}

Result<Certificate> root_of(const std::vector<Certificate>& chain, const std::vector<Certificate>& authorities) {
  return check_path(chain, authorities, {});
}

}  // namespace fluvial::identity
