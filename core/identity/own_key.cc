#include "core/identity/own_key.h"

#include "core/identity/files.h"

namespace fluvial::identity {

Result<PrivateKey> load_or_make_key(const std::string& folder) {
  FLUVIAL_TRY(make_private_folder(folder));
  FLUVIAL_ASSIGN(const FolderLock lock, FolderLock::take(folder));
  FLUVIAL_TRY(sync_folder(folder));  // the process that wrote the key may have been killed before it was durable
  auto key = PrivateKey::load(folder + "/key.pem");
  if (key.ok() || key.error().code != Code::kNotFound) return key;
  FLUVIAL_ASSIGN(PrivateKey made, PrivateKey::generate());
  FLUVIAL_TRY(made.save(folder + "/key.pem"));
  return made;
}

}  // namespace fluvial::identity
