// One-time enrolment tokens. The text goes to a person; the coordinator keeps a record with a hash.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/identity/secret.h"

namespace fluvial::identity {

// What the client learns from the text "fluvial-1.<base64url>". Role and name are advisory: the record decides.
struct EnrolmentToken {
  Secret secret;
  std::string pin;  // of the federation's authority
  Role role = Role::kSite;
  std::string name;  // as check_token_name() wants it
  WallTime expires_at;
  std::string address;  // host:port of the enrolment port, or empty

  // kInvalidArgument: not a token at all, another version, or damaged in copying (its checksum tells a typo from a
  // token that the coordinator does not know). The text never appears in the message.
  static Result<EnrolmentToken> parse(std::string_view text);
  std::string to_text() const;  // holds the secret: print it once, keep it nowhere
};

// What the coordinator keeps. Reading it does not let anyone enrol.
struct TokenRecord {
  std::string id;  // the first 12 hex digits of secret_hash: names the token in listings and logs
  Digest secret_hash = {};
  Role role = Role::kSite;
  std::string name;
  std::string region;
  std::uint32_t weight_max = 0;
  WallTime expires_at;
  std::optional<WallTime> used_at;  // the last time
  std::uint64_t uses_max = 1;
  std::uint64_t uses = 0;
  std::optional<WallTime> revoked_at = {};
  std::string revoked_why = {};
};

inline constexpr std::uint64_t kTokenUsesMax = 100'000;

struct TokenRequest {
  Role role = Role::kSite;
  std::string name;
  std::string region;
  std::uint32_t weight_max = 0;
  WallTime expires_at;
  std::string address;
  std::uint64_t uses_max = 1;  // more: for as many members, whose names begin with `name`
};

struct NewToken {
  EnrolmentToken token;
  TokenRecord record;
};

// kInvalidArgument for a name, region, role, pin, address or number of uses that is not valid. The caller checks
// weights.
Result<NewToken> make_token(const TokenRequest& request, std::string_view authority_pin);

// How a record is found: sha256 of the secret, and the record id that follows from it.
Digest token_hash(const Secret& secret);
std::string token_id(const Digest& secret_hash);

// May this secret enrol now? kUnauthenticated, one of: wrong token, token was revoked at ..., token was used at ...,
// token expired at ...
// Pure: the caller marks the record used, durably, before it hands out a certificate.
Status redeem(const TokenRecord& record, const Secret& secret, WallTime now);

std::string format_utc(WallTime time);  // "2026-01-31 12:00:00 UTC"

}  // namespace fluvial::identity
