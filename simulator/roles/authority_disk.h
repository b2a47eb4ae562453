// The coordinator's folder of authorities on its simulated disk: the shipped order of writes, and keys that are the
// same in each process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coordinator/service/authority_folder.h"
#include "core/store/file_system.h"

namespace fluvial::simulator {

class AuthorityDisk final : public coordinator::AuthorityFolder {
 public:
  // `next`: the number of another authority (simulated_issuer()).
  AuthorityDisk(store::FileSystem& files, std::function<std::size_t()> next);

  const std::string& path() const override { return path_; }
  Status make() override { return files_.make_folder(path_); }
  Result<identity::Issuer> open_or_make_issuer(const std::string& federation, WallTime now) override;
  Result<identity::Issuer> make_issuer(const std::string& federation, WallTime now) override;
  bool has(const std::string& name) override;
  std::vector<std::string> names() override;
  void remove(const std::string& name) override;
  Result<identity::PrivateKey> load_key(const std::string& name) override;
  Status save_key(const identity::PrivateKey& key, const std::string& name) override;
  Result<std::vector<identity::Certificate>> load_chain(const std::string& name) override;
  Status save_chain(const std::vector<identity::Certificate>& chain, const std::string& name) override;

 private:
  Status write(const std::string& name, const std::string& text);
  Result<std::string> read(const std::string& name);

  store::FileSystem& files_;
  std::function<std::size_t()> next_;
  const std::string path_ = "ca";
};

}  // namespace fluvial::simulator
