// Who signs members' certificates: the authority that a coordinator makes for itself, or one below an authority of an
// existing PKI, whose own key is kept elsewhere.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/identity/certificate.h"
#include "core/identity/key.h"

namespace fluvial::identity {

struct Issuer {
  PrivateKey key;
  // The issuing certificate first, the authority that members trust last. Only one: it is self-signed.
  std::vector<Certificate> chain;
};

// A self-signed one. `federation` is a node name.
Result<Issuer> make_issuer(const std::string& federation, WallTime now, std::chrono::seconds validity);
Result<Issuer> make_issuer(PrivateKey key, const std::string& federation, WallTime now, std::chrono::seconds validity);

// `folder`/ca-key.pem and ca.pem, or makes them, self-signed, and the folder with mode 0700. One that was cut short
// between the two files goes on with the key it wrote, so the pin never changes.
Result<Issuer> open_or_make_issuer(const std::string& folder, const std::string& federation, WallTime now);

// What an operator names. PEM all; `certificate` may hold those between it and the root, too, in this order.
struct IssuerFiles {
  std::string certificate;
  std::string key;  // mode 0600, not encrypted
  std::string root;
};

// kNotFound, kDataLoss, kFailedPrecondition and so on name the file, and what a member would not accept about it.
Result<Issuer> load_issuer(const IssuerFiles& files, WallTime now);

// Whether members would trust what it issues: authorities all along, usages, path lengths, dates, signatures, the key.
// kFailedPrecondition says what is wrong; the message starts with `where`.
Status check_issuer(const Issuer& issuer, WallTime now, const std::string& where);

// When the first of its certificates ends: nothing that it issues outlives that.
WallTime end_of(const std::vector<Certificate>& chain);

// For the holder of the root: a PEM request for an authority that issues for this federation and has none below it.
Result<std::string> make_authority_request(const PrivateKey& key, const std::string& federation);

}  // namespace fluvial::identity
