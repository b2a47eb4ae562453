// The folder with the authorities' keys, and what is made for it. Blocking.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/identity/certificate.h"
#include "core/identity/issuer.h"
#include "core/identity/key.h"

namespace fluvial::coordinator {

// Names are of files in it. What is saved is durable and whole, and replaces what was there.
class AuthorityFolder {
 public:
  virtual ~AuthorityFolder() = default;
  virtual const std::string& path() const = 0;  // for messages
  virtual Status make() = 0;                    // the folder, unless it is there
  // ca-key.pem and ca.pem; made, self-signed, when they are not there.
  virtual Result<identity::Issuer> open_or_make_issuer(const std::string& federation, WallTime now) = 0;
  // Another one, self-signed, in no file yet.
  virtual Result<identity::Issuer> make_issuer(const std::string& federation, WallTime now) = 0;

  virtual bool has(const std::string& name) = 0;
  virtual std::vector<std::string> names() = 0;
  virtual void remove(const std::string& name) = 0;                            // as far as that can be done
  virtual Result<identity::PrivateKey> load_key(const std::string& name) = 0;  // kNotFound when absent
  virtual Status save_key(const identity::PrivateKey& key, const std::string& name) = 0;
  virtual Result<std::vector<identity::Certificate>> load_chain(const std::string& name) = 0;
  virtual Status save_chain(const std::vector<identity::Certificate>& chain, const std::string& name) = 0;
};

// On the machine's own disk: mode 0700, keys 0600.
std::shared_ptr<AuthorityFolder> authority_folder(std::string path);

}  // namespace fluvial::coordinator
