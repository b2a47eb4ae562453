#include "simulator/roles/authority_disk.h"

#include <charconv>
#include <utility>

#include "core/identity/signature.h"
#include "simulator/roles/certificates.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kFileBytesMax = 1 << 16;

}  // namespace

AuthorityDisk::AuthorityDisk(store::FileSystem& files, std::function<std::size_t()> next)
    : files_(files), next_(std::move(next)) {}

Status AuthorityDisk::write(const std::string& name, const std::string& text) {
  const ByteSpan parts[] = {as_byte_span(text)};
  return store::write_file_atomically(files_, store::join_path(path_, name), parts);
}

Result<std::string> AuthorityDisk::read(const std::string& name) {
  FLUVIAL_ASSIGN(const Buffer bytes, store::read_file(files_, store::join_path(path_, name), kFileBytesMax));
  return std::string(as_text(bytes.span()));
}

Result<identity::Issuer> AuthorityDisk::open_or_make_issuer(const std::string&, WallTime) {
  const identity::Issuer& first = simulated_issuer(0);
  if (!has("ca-key.pem")) FLUVIAL_TRY(save_key(first.key, "ca-key.pem"));
  if (!has("ca.pem")) FLUVIAL_TRY(save_chain(first.chain, "ca.pem"));
  return first;
}

Result<identity::Issuer> AuthorityDisk::make_issuer(const std::string&, WallTime) { return simulated_issuer(next_()); }

bool AuthorityDisk::has(const std::string& name) {
  const Result<bool> there = files_.exists(store::join_path(path_, name));
  return there.ok() && *there;
}

std::vector<std::string> AuthorityDisk::names() {
  Result<std::vector<std::string>> found = files_.list(path_);
  return found.ok() ? std::move(*found) : std::vector<std::string>();
}

void AuthorityDisk::remove(const std::string& name) {
  const Status removed = files_.remove(store::join_path(path_, name));
  (void)removed.ok();  // at the next start
}

// A key's file names its number.
Result<identity::PrivateKey> AuthorityDisk::load_key(const std::string& name) {
  FLUVIAL_ASSIGN(const std::string text, read(name));
  std::size_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return simulated_issuer(number).key;
}

Status AuthorityDisk::save_key(const identity::PrivateKey& key, const std::string& name) {
  const auto id = identity::PublicKey::of(key).id();
  std::size_t number = 0;
  while (identity::PublicKey::of(simulated_issuer(number).key).id() != id) ++number;
  return write(name, std::to_string(number));
}

Result<std::vector<identity::Certificate>> AuthorityDisk::load_chain(const std::string& name) {
  FLUVIAL_ASSIGN(const std::string text, read(name));
  return identity::Certificate::chain_from_pem(text);
}

Status AuthorityDisk::save_chain(const std::vector<identity::Certificate>& chain, const std::string& name) {
  return write(name, identity::Certificate::pem_of(chain));
}

}  // namespace fluvial::simulator
