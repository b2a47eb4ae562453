// The text of an enrolment token: any text, and tokens of any content whose checksum fits. What is accepted says what
// its bytes say, has one text, and is redeemed by its own secret alone; no error tells the secret.
#include <openssl/evp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/digest/sha256.h"
#include "core/identity/certificate.h"
#include "core/identity/names.h"
#include "core/identity/token.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

using identity::EnrolmentToken;

constexpr std::string_view kPrefix = "fluvial-1.";

// Base64 for URLs (RFC 4648, section 5) without padding, by OpenSSL's encoder.
std::string base64url(const std::string& bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const auto* const from = reinterpret_cast<const unsigned char*>(bytes.data());  // NOLINT: bytes as text
  auto* const to = reinterpret_cast<unsigned char*>(text.data());                 // NOLINT: as above
  text.resize(static_cast<std::size_t>(EVP_EncodeBlock(to, from, static_cast<int>(bytes.size()))));
  text.erase(std::find(text.begin(), text.end(), '='), text.end());
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return text;
}

void check_same(const EnrolmentToken& token, const EnrolmentToken& other) {
  FLUVIAL_CHECK(std::ranges::equal(token.secret.bytes(), other.secret.bytes()) && token.pin == other.pin &&
                    token.role == other.role && token.name == other.name && token.address == other.address &&
                    token.expires_at == other.expires_at,
                "a token means something else when it is read again");
}

void check_token(const EnrolmentToken& token) {
  FLUVIAL_CHECK(identity::check_pin(token.pin).ok() && identity::check_token_name(token.name).ok(),
                "a token with parts that no token has");
  const std::string text = token.to_text();
  const Result<EnrolmentToken> again = EnrolmentToken::parse(text);
  FLUVIAL_CHECK(again.ok(), "a token that was read has a text that is refused");
  check_same(token, *again);
}

void read_text(std::string_view text) {
  const Result<EnrolmentToken> token = EnrolmentToken::parse(text);
  if (token.ok()) {
    check_token(*token);
    const std::string own = token->to_text();
    FLUVIAL_CHECK(text.find(own) != std::string_view::npos, "two texts for one token");
    return;
  }
  check_error(token.error());
  check_keeps(token.error(), text.substr(std::min(text.size(), kPrefix.size())));
}

// A payload with its checksum, perhaps with more behind it, or in another form.
void read_payload(Input& input) {
  const std::uint8_t role = input.byte();
  const auto expires = input.number<std::uint64_t>();
  std::string payload(1, static_cast<char>(role));
  for (int i = 0; i < 8; ++i) payload += static_cast<char>(expires >> (8 * i));
  const std::string secret(32, static_cast<char>(input.byte()));
  const std::string pin(32, static_cast<char>(input.byte()));
  const std::string name = input.text();
  const std::string address = input.text();
  payload += secret + pin + static_cast<char>(name.size()) + name + static_cast<char>(address.size()) + address;
  payload += input.text();
  const bool has_more = payload.size() > 1 + 8 + 64 + 2 + name.size() + address.size();
  payload += as_text(ByteSpan(sha256(as_byte_span(payload))).first(4));
  const std::string text = std::string(kPrefix) + base64url(payload);
  const Result<EnrolmentToken> token = EnrolmentToken::parse(text);
  if (!token.ok()) {
    check_error(token.error());
    check_keeps(token.error(), text.substr(kPrefix.size()), name + address);
    const bool is_plain = (role == 1 || role == 2) && expires < 1'000'000'000'000 / 4 && address.empty() && !has_more;
    FLUVIAL_CHECK(!is_plain || !identity::check_token_name(name).ok(), "a good token is refused");
    return;
  }
  check_token(*token);
  FLUVIAL_CHECK(token->to_text() == text && !has_more, "two texts for one token");
  FLUVIAL_CHECK(as_text(token->secret.bytes()) == secret && token->name == name && token->address == address &&
                    token->pin == "sha256:" + to_hex(as_byte_span(pin)) &&
                    token->expires_at == WallTime(std::chrono::seconds(static_cast<std::int64_t>(expires))),
                "a token that says something else than its bytes");
}

// Made, written, read and redeemed.
void make(Input& input) {
  identity::TokenRequest request;
  request.role = static_cast<Role>(input.below(4));
  request.uses_max = input.number<std::uint32_t>();
  request.expires_at = WallTime(std::chrono::seconds(input.number<std::uint32_t>()));
  request.name = input.text();
  request.region = input.text();
  request.address = input.text();
  const Result<identity::NewToken> made = identity::make_token(request, "sha256:" + std::string(64, 'a'));
  if (!made.ok()) return check_error(made.error());
  check_token(made->token);
  const WallTime before = request.expires_at - std::chrono::seconds(1);
  FLUVIAL_CHECK(identity::redeem(made->record, made->token.secret, before).ok(), "a new token is not good");
  const std::string own(as_text(made->token.secret.bytes()));
  for (const WallTime now : {before, request.expires_at}) {
    const bool is_own = now == request.expires_at;
    const identity::Secret other = is_own ? made->token.secret : identity::Secret::random();
    const Status refused = identity::redeem(made->record, other, now);
    FLUVIAL_CHECK(!refused.ok(), "a token is redeemed by another secret, or after its end");
    check_error(refused.error());
    check_keeps(refused.error(), own);
    check_keeps(refused.error(), to_hex(made->token.secret.bytes()));
  }
}

void run(ByteSpan bytes) {
  Input input(bytes);
  switch (input.below(3)) {
    case 0: return read_text(as_text(input.rest()));
    case 1: return read_payload(input);
    default: return make(input);
  }
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
