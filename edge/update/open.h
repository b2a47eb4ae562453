// A site's store with the codecs: what a counted submission left out is read from its p and its chunks.
#pragma once

#include <memory>
#include <string>

#include "core/store/site_store.h"

namespace fluvial::edge {

// As SiteStore::open().
Result<std::unique_ptr<store::SiteStore>> open_site_store(store::FileSystem& files, const std::string& folder,
                                                          std::uint64_t enrolled_before = 0);

}  // namespace fluvial::edge
