// For the tests of this room: a model of 600 values in three chunks, updates of it in fp32, and where they are staged.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/digest/submission_digest.h"
#include "core/store/memory_file_system.h"
#include "core/transfer/incoming.h"
#include "core/wire/mapping.h"

namespace fluvial::transfer {

inline constexpr std::uint64_t kTestValues = 600;
inline constexpr std::uint64_t kTestChunkValues = 256;
inline constexpr int kTestScale = 20;

inline Terms test_terms() {
  Terms terms;
  terms.layout = {kTestValues, kTestChunkValues};
  terms.plain_values = kTestValues;
  terms.codec = *kernels::make_codec(*kernels::parse_codec("fp32"));
  terms.codec_name = "fp32";
  terms.value_abs_max = 100;
  terms.scale_bits = kTestScale;
  return terms;
}

inline UpdateHead test_head(std::uint32_t site, std::uint64_t submission = 1, std::uint64_t incarnation = 1) {
  UpdateHead head;
  head.run = RunId(1);
  head.round = RoundId(1);
  head.site = SiteId(site);
  head.incarnation = Incarnation(incarnation);
  head.submission = submission;
  head.weight = site;
  head.lease = Epoch(1);
  head.codec_name = "fp32";
  head.value_count = kTestValues;
  head.chunk_count = 3;
  return head;
}

inline std::vector<float> test_values(float first) {
  std::vector<float> values(kTestValues);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i) / 16;
  return values;
}
inline Buffer test_chunk(const std::vector<float>& values, std::size_t index) {
  const std::size_t first = index * kTestChunkValues;
  const std::size_t count = std::min<std::size_t>(kTestChunkValues, values.size() - first);
  return Buffer::copy_of(std::as_bytes(std::span(values).subspan(first, count)));
}
// The trailer behind the chunks: no integers, and the probe.
inline Buffer test_trailer() { return Buffer::copy_of(round::probe_bytes()); }
inline Digest test_sha256(const std::vector<float>& values) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(values)));
  hash.update(round::probe_bytes());
  return hash.finish();
}
inline Digest test_tree(const std::vector<float>& values) {
  SubmissionDigest digest(DigestKind::kTree, 3);
  for (std::size_t i = 0; i < 3; ++i) digest.side_by_side(i, test_chunk(values, i).span());
  return digest.finish(round::probe_bytes());
}
inline std::string test_digest(const std::vector<float>& values) { return wire::digest_to_proto(test_sha256(values)); }

class TransferTest : public testing::Test {
 protected:
  TransferTest() { EXPECT_TRUE(files_.make_folder("/spill").ok()); }

  Incoming begin(const UpdateHead& head) {
    Result<Incoming> incoming = Incoming::begin(head, test_terms(), staging_);
    EXPECT_TRUE(incoming.ok());
    return std::move(*incoming);
  }
  static void feed(Incoming& incoming, const std::vector<float>& values, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) EXPECT_TRUE(incoming.chunk(i, test_chunk(values, i)).ok()) << i;
  }
  StagedArrival arrival(const UpdateHead& head, const std::vector<float>& values) {
    Incoming incoming = begin(head);
    feed(incoming, values, 0, 3);
    Result<StagedArrival> staged = incoming.end(test_digest(values), test_trailer().span());
    EXPECT_TRUE(staged.ok());
    return std::move(*staged);
  }

  store::MemoryFileSystem files_;
  store::StagingBudget budget_{1 << 20};
  Staging staging_{&budget_, &files_, "/spill"};
};

}  // namespace fluvial::transfer
