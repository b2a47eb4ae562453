// ECDSA P-256 private keys, made where they are used and never sent.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.h"

struct evp_pkey_st;

namespace fluvial::identity {

// A handle on an immutable key; copies share it. Thread safe. Memory is wiped when the last copy is dropped.
class PrivateKey {
 public:
  static Result<PrivateKey> generate();
  // kFailedPrecondition when group or others may read the file (names the file and its mode); kNotFound when absent.
  static Result<PrivateKey> load(const std::string& path);

  // Writes PEM with mode 0600: temporary file, fsync, rename, fsync of the folder. Replaces what was there.
  Status save(const std::string& path) const;

  evp_pkey_st* native() const { return key_.get(); }
  explicit PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}

 private:
  std::shared_ptr<evp_pkey_st> key_;
};

}  // namespace fluvial::identity
