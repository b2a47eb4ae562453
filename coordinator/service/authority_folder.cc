#include "coordinator/service/authority_folder.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/identity/authority.h"
#include "core/identity/files.h"

namespace fluvial::coordinator {
namespace {

class OnDisk final : public AuthorityFolder {
 public:
  explicit OnDisk(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  Status make() override { return identity::make_private_folder(path_); }
  Result<identity::Issuer> open_or_make_issuer(const std::string& federation, WallTime now) override {
    return identity::open_or_make_issuer(path_, federation, now);
  }
  Result<identity::Issuer> make_issuer(const std::string& federation, WallTime now) override {
    return identity::make_issuer(federation, now, identity::kAuthorityValidity);
  }
  bool has(const std::string& name) override {
    std::error_code failure;
    return std::filesystem::exists(file(name), failure);
  }
  std::vector<std::string> names() override {
    std::vector<std::string> found;
    std::error_code failure;
    for (const auto& entry : std::filesystem::directory_iterator(path_, failure)) {
      found.push_back(entry.path().filename().string());
    }
    return found;
  }
  void remove(const std::string& name) override {
    std::error_code ignored;
    std::filesystem::remove(file(name), ignored);
  }
  Result<identity::PrivateKey> load_key(const std::string& name) override {
    return identity::PrivateKey::load(file(name));
  }
  Status save_key(const identity::PrivateKey& key, const std::string& name) override { return key.save(file(name)); }
  Result<std::vector<identity::Certificate>> load_chain(const std::string& name) override {
    return identity::Certificate::load_chain(file(name));
  }
  Status save_chain(const std::vector<identity::Certificate>& chain, const std::string& name) override {
    return identity::Certificate::save_chain(chain, file(name));
  }

 private:
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string path_;
};

}  // namespace

std::shared_ptr<AuthorityFolder> authority_folder(std::string path) {
  return std::make_shared<OnDisk>(std::move(path));
}

}  // namespace fluvial::coordinator
