#include "core/identity/token.h"

#include <fmt/chrono.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/digest/sha256.h"
#include "core/identity/certificate.h"
#include "core/identity/names.h"

// The bytes inside a token, before base64url (integers little-endian):
//
//   role u8 (1 site, 2 aggregator, 3 coordinator) | expires_at i64, unix seconds | secret 32 | pin 32
//   | name length u8, name | address length u8, address | checksum 4: the first bytes of SHA-256 over all before
//
// The "-1" of the prefix is the version of this layout.
namespace fluvial::identity {
namespace {

constexpr std::string_view kFamily = "fluvial-";
constexpr std::string_view kPrefix = "fluvial-1.";
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t kTokenCharsMax = 1024;
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kAddressCharsMax = 255;
constexpr std::size_t kIdHexDigits = 12;

// Bytes that hold a secret for a short time.
struct WipedBytes {
  std::vector<std::byte> bytes;
  WipedBytes() { bytes.reserve(kTokenCharsMax); }  // no reallocation leaves a copy behind
  WipedBytes(const WipedBytes&) = delete;
  WipedBytes& operator=(const WipedBytes&) = delete;
  ~WipedBytes() { wipe(bytes); }
  void add(ByteSpan more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
  void add_text(std::string_view text) {
    bytes.push_back(static_cast<std::byte>(text.size()));
    add(as_byte_span(text));
  }
};

std::string base64url(ByteSpan bytes) {
  std::string text;
  text.reserve(bytes.size() * 4 / 3 + 4);
  std::uint32_t pending = 0;
  int bits = 0;
  for (const std::byte byte : bytes) {
    pending = (pending << 8) | std::to_integer<std::uint32_t>(byte);
    for (bits += 8; bits >= 6; bits -= 6) text += kAlphabet[(pending >> (bits - 6)) & 63];
  }
  if (bits > 0) text += kAlphabet[(pending << (6 - bits)) & 63];
  return text;
}

// False for a character outside the alphabet or left-over bits that are not zero: one text for each byte string.
bool decode_base64url(std::string_view text, std::vector<std::byte>& out) {
  std::uint32_t pending = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) return false;
    pending = (pending << 6) | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<std::byte>((pending >> bits) & 0xff));
    }
  }
  return bits < 6 && (pending & ((1U << bits) - 1)) == 0;
}

std::byte role_byte(Role role) {
  switch (role) {
    case Role::kSite: return std::byte{1};
    case Role::kAggregator: return std::byte{2};
    case Role::kCoordinator: return std::byte{3};
    case Role::kOperator: break;
  }
  return std::byte{4};
}

Result<Role> role_from_byte(std::byte byte) {
  for (const Role role : {Role::kSite, Role::kAggregator, Role::kCoordinator, Role::kOperator}) {
    if (role_byte(role) == byte) return role;
  }
  return Error{Code::kInvalidArgument, "the token names an unknown role"};
}

// host:port, [v6]:port. Does not check that the host exists.
Status check_address(std::string_view address) {
  if (address.empty()) return {};
  const std::size_t colon = address.rfind(':');
  const std::string_view port = colon == std::string_view::npos ? "" : address.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool printable = std::all_of(address.begin(), address.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (digits && printable && colon > 0 && address.size() <= kAddressCharsMax) {
    const int number = std::stoi(std::string(port));
    if (number >= 1 && number <= 65535) return {};
  }
  return Error{Code::kInvalidArgument, "an enrolment address is host:port with a port from 1 to 65535"};
}

// Takes parts off the front of a payload; every length is checked first.
struct Reader {
  ByteSpan rest;
  bool good = true;

  ByteSpan take(std::size_t size) {
    if (!good || rest.size() < size) {
      good = false;
      return {};
    }
    const ByteSpan part = rest.first(size);
    rest = rest.subspan(size);
    return part;
  }
  std::string_view take_text() {
    const ByteSpan size = take(1);
    return size.empty() ? std::string_view() : as_text(take(std::to_integer<std::size_t>(size[0])));
  }
};

Result<EnrolmentToken> from_payload(ByteSpan payload) {
  const Error malformed{Code::kInvalidArgument, "the token's content does not fit its version"};
  Reader reader{payload};
  const ByteSpan role = reader.take(1);
  const ByteSpan expiry = reader.take(8);
  const ByteSpan secret = reader.take(Secret::kSizeBytes);
  const ByteSpan pin = reader.take(sizeof(Digest));
  EnrolmentToken token;
  token.name = reader.take_text();
  token.address = reader.take_text();
  if (!reader.good || !reader.rest.empty()) return malformed;
  FLUVIAL_ASSIGN(token.role, role_from_byte(role[0]));
  FLUVIAL_ASSIGN(token.secret, Secret::from_bytes(secret));
  FLUVIAL_TRY(check_token_name(token.name));
  FLUVIAL_TRY(check_address(token.address));
  const auto seconds = static_cast<std::int64_t>(load_le<std::uint64_t>(expiry.data()));
  constexpr std::int64_t kYear10000 = 253402300800;
  if (seconds < 0 || seconds >= kYear10000) return malformed;
  token.expires_at = WallTime(std::chrono::seconds(seconds));
  token.pin = std::string(kPinPrefix) + to_hex(pin);
  return token;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

Result<EnrolmentToken> EnrolmentToken::parse(std::string_view text) {
  text = trimmed(text);
  if (!text.starts_with(kPrefix)) {
    if (text.starts_with(kFamily)) {
      return Error{Code::kInvalidArgument, "the token is of another version than this program (fluvial-1)"};
    }
    if (text.starts_with("\xef\xbb\xbf") || text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
      return Error{
          Code::kInvalidArgument,
          "the token begins with a byte order mark (BOM), as some editors and shells write one: save its file as "
          "plain ASCII, without a BOM, or copy the token alone"};
    }
    return Error{Code::kInvalidArgument, "this is not an enrolment token: one starts with \"fluvial-1.\""};
  }
  const Error damaged{Code::kInvalidArgument, "the token is damaged (its checksum does not fit): copy it again, whole"};
  if (text.size() > kTokenCharsMax) return damaged;
  WipedBytes payload;
  if (!decode_base64url(text.substr(kPrefix.size()), payload.bytes)) return damaged;
  if (payload.bytes.size() <= kChecksumBytes) return damaged;
  const ByteSpan body = ByteSpan(payload.bytes).first(payload.bytes.size() - kChecksumBytes);
  const Digest digest = sha256(body);
  if (!std::equal(digest.begin(), digest.begin() + kChecksumBytes, payload.bytes.end() - kChecksumBytes)) {
    return damaged;
  }
  return from_payload(body);
}

std::string EnrolmentToken::to_text() const {
  FLUVIAL_CHECK(check_pin(pin).ok() && check_token_name(name).ok() && check_address(address).ok(),
                "a token with parts that make_token() refuses");
  const Digest pin_digest = digest_from_hex(std::string_view(pin).substr(kPinPrefix.size())).value();
  WipedBytes payload;
  payload.bytes.push_back(role_byte(role));
  std::array<std::byte, 8> expiry;
  store_le(expiry.data(),
           static_cast<std::uint64_t>(std::chrono::floor<std::chrono::seconds>(expires_at).time_since_epoch().count()));
  payload.add(expiry);
  payload.add(secret.bytes());
  payload.add(pin_digest);
  payload.add_text(name);
  payload.add_text(address);
  const Digest digest = sha256(payload.bytes);
  payload.add(ByteSpan(digest).first(kChecksumBytes));
  return std::string(kPrefix) + base64url(payload.bytes);
}

Result<NewToken> make_token(const TokenRequest& request, std::string_view authority_pin) {
  FLUVIAL_TRY(check_node_name(request.name));
  if (request.uses_max == 0 || request.uses_max > kTokenUsesMax) {
    return Error{Code::kInvalidArgument, fmt::format("a token is used 1 to {} times", kTokenUsesMax)};
  }
  const std::string name = request.uses_max == 1 ? request.name : request.name + "-*";
  FLUVIAL_TRY(check_token_name(name));
  FLUVIAL_TRY(check_region(request.region));
  FLUVIAL_TRY(check_pin(authority_pin));
  FLUVIAL_TRY(check_address(request.address));
  if (request.role == Role::kCoordinator) {
    return Error{Code::kInvalidArgument, "a federation has one coordinator, and it makes its own certificate"};
  }
  if (request.role == Role::kOperator && (request.uses_max != 1 || !request.region.empty())) {
    return Error{Code::kInvalidArgument, "an operator is one person, and stands in no region"};
  }
  EnrolmentToken token;
  token.secret = Secret::random();
  token.pin = authority_pin;
  token.role = request.role;
  token.name = name;
  token.expires_at = std::chrono::floor<std::chrono::seconds>(request.expires_at);
  token.address = request.address;
  TokenRecord record;
  record.secret_hash = token_hash(token.secret);
  record.id = token_id(record.secret_hash);
  record.role = request.role;
  record.name = name;
  record.region = request.region;
  record.weight_max = request.weight_max;
  record.expires_at = token.expires_at;
  record.uses_max = request.uses_max;
  return NewToken{std::move(token), std::move(record)};
}

Digest token_hash(const Secret& secret) { return sha256(secret.bytes()); }

std::string token_id(const Digest& secret_hash) { return to_hex(secret_hash).substr(0, kIdHexDigits); }

Status redeem(const TokenRecord& record, const Secret& secret, WallTime now) {
  const Digest hash = token_hash(secret);
  if (CRYPTO_memcmp(hash.data(), record.secret_hash.data(), hash.size()) != 0) {
    return Error{Code::kUnauthenticated, "wrong token"};
  }
  if (record.revoked_at) {
    return Error{Code::kUnauthenticated,
                 fmt::format("token {} was revoked at {}{}{}", record.id, format_utc(*record.revoked_at),
                             record.revoked_why.empty() ? "" : ": ", record.revoked_why)};
  }
  if (record.uses >= record.uses_max && record.used_at) {
    const std::string times = record.uses_max == 1 ? "" : fmt::format(" {} times, the last", record.uses);
    return Error{Code::kUnauthenticated,
                 fmt::format("token {} was used{} at {}", record.id, times, format_utc(*record.used_at))};
  }
  if (now >= record.expires_at) {
    return Error{Code::kUnauthenticated,
                 fmt::format("token {} expired at {}", record.id, format_utc(record.expires_at))};
  }
  return {};
}

std::string format_utc(WallTime time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC",
                     fmt::gmtime(std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count()));
}

}  // namespace fluvial::identity
