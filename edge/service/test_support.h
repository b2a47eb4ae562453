// What the room's tests share: a site's runtime, small models.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/digest/sha256.h"
#include "core/store/site_store.h"
#include "core/tree/test_runtime.h"
#include "edge/service/trained.h"
#include "edge/update/open.h"

namespace fluvial::edge {

using tree::Mailbox;

class TestRuntime : public tree::TestRuntime {
 public:
  explicit TestRuntime(std::size_t pool_threads = 2) : tree::TestRuntime(Role::kSite, pool_threads) {}

  std::unique_ptr<store::SiteStore> open_store() {
    Result<std::unique_ptr<store::SiteStore>> opened = open_site_store(files(), "/site");
    EXPECT_TRUE(opened.ok()) << opened.error().to_string();
    return std::move(*opened);
  }
};

inline std::shared_ptr<const local::SharedModel> shared(ByteSpan bytes) {
  return local::SharedModel::copy_of(bytes).value();
}
inline std::shared_ptr<const local::SharedModel> shared(const std::vector<float>& values) {
  return shared(std::as_bytes(std::span(values)));
}

inline HeldModel held_model(RunId run, std::uint64_t version, round::Schema schema, ByteSpan bytes) {
  return {{run, ModelVersion(version), sha256(bytes), bytes.size()}, std::move(schema), shared(bytes)};
}

// Deterministic, and different for each seed.
inline std::vector<float> draw(std::uint64_t seed, std::size_t count, double scale = 1) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>((rng.uniform() - 0.5) * scale);
  return values;
}

}  // namespace fluvial::edge
