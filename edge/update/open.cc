#include "edge/update/open.h"

#include "edge/update/fit.h"

namespace fluvial::edge {

Result<std::unique_ptr<store::SiteStore>> open_site_store(store::FileSystem& files, const std::string& folder,
                                                          std::uint64_t enrolled_before) {
  return store::SiteStore::open(files, folder, enrolled_before, leave_by);
}

}  // namespace fluvial::edge
