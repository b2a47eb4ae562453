// Shared by the tests of a site's store: submissions of six values in two chunks, and a store on a disk in memory.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/store/memory_file_system.h"
#include "core/store/site_store.h"
#include "core/store/test_support.h"

namespace fluvial::store {

inline constexpr const char* kFolder = "/site";
inline constexpr RunId kRun{3};

inline std::vector<float> values(float fill) { return std::vector<float>(6, fill); }
inline std::string chunk_text(std::uint64_t index) {
  return "encoded-" + std::to_string(index) + std::string(index, '.');
}
// A codec that sends half of each value.
inline Result<LeaveChunk> leave_half(const std::string& codec, const Fit&) {
  if (codec != "int8") return Error{Code::kInvalidArgument, "codec " + codec + " is not known"};
  return LeaveChunk([](ByteSpan chunk, std::span<float> p) -> Status {
    if (!as_text(chunk).starts_with("encoded-")) return Error{Code::kDataLoss, "no chunk of this codec"};
    for (float& value : p) value /= 2;
    return {};
  });
}

inline constexpr std::string_view kTrailer = "three integers, 8 each, 1.0F";  // 3 * 8 + 4 bytes
static_assert(kTrailer.size() == 28);

inline PendingStart start_of(std::uint64_t round, bool lossless = false) {
  return {kRun, RoundId(round), 17, "int8", digest_of("base"), {{"loss", 1.5}}, 6, 2, 3, lossless, 4};
}

inline Result<PendingUpdate> submit(SiteStore& store, std::uint64_t round, float fill, bool lossless = false) {
  FLUVIAL_ASSIGN(const std::unique_ptr<PendingWriter> writer, store.begin_pending(start_of(round, lossless)));
  const std::vector<float> p = values(fill);
  FLUVIAL_TRY(writer->write_p(0, std::span(p).first(4)));
  FLUVIAL_TRY(writer->write_p(4, std::span(p).subspan(4)));
  for (std::uint64_t i = 0; i < 2; ++i) {
    const ByteSpan exact = std::as_bytes(std::span(p)).subspan(i * 12, 12);
    FLUVIAL_TRY(writer->write_chunk(i, lossless ? exact : as_byte_span(chunk_text(i))));
  }
  FLUVIAL_TRY(writer->write_trailer(as_byte_span(kTrailer)));
  return writer->finish(digest_of("update"));
}

// It leaves half of its p: six values of `left`.
inline Result<Carried> count(SiteStore& store, std::uint64_t round, float left) {
  return store.resolve(kRun, RoundId(round), Outcome::kCounted, std::sqrt(6.0) * static_cast<double>(left));
}

inline std::vector<float> residual_of(SiteStore& store) {
  std::vector<float> found(6, -1);
  EXPECT_TRUE(store.read_residual(kRun, 0, found).ok());
  return found;
}

class SiteStoreTest : public testing::Test {
 protected:
  SiteStoreTest() { reopen(); }
  void reopen() {
    store.reset();
    Result<std::unique_ptr<SiteStore>> opened = SiteStore::open(files, kFolder, 0, leave_half);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    store = std::move(*opened);
  }
  void crash_and_reopen() {
    files.restart(Unsynced::kLost);
    reopen();
  }
  std::size_t tensor_files() { return files.list("/site/tensors")->size(); }
  MemoryFileSystem files;
  std::unique_ptr<SiteStore> store;
};

}  // namespace fluvial::store
