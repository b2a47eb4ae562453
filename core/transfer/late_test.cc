// Updates of an earlier round, at a parent: who may come in, and what they count. The oracle is a loop over the values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/base/parallel.h"
#include "core/transfer/inflow.h"
#include "core/transfer/node_sum.h"
#include "core/transfer/test_support.h"

namespace fluvial::transfer {
namespace {

Digest digest_of(unsigned char version) { return {std::byte{version}}; }

// Round 5: its base is version 4, and updates from versions 3 and 2 may enter.
Terms late_terms() {
  Terms terms = test_terms();
  terms.base = digest_of(4);
  terms.base_version = ModelVersion(4);
  const auto ref = [](unsigned char version) {
    return round::ModelRef{RunId(1), ModelVersion(version), digest_of(version), 100};
  };
  terms.late =
      std::make_shared<const round::Lateness>(round::Lateness{2, round::staleness_factors(2, 0.5), {ref(3), ref(2)}});
  return terms;
}
UpdateHead head_from(unsigned char version, std::uint32_t site) {
  UpdateHead head = test_head(site);
  head.round = RoundId(5);
  head.base_version = ModelVersion(version);
  head.base = digest_of(version);
  return head;
}

class LateUpdates : public TransferTest {
 protected:
  Result<StagedArrival> bring(const UpdateHead& head, const Terms& terms, const std::vector<float>& values) {
    FLUVIAL_ASSIGN(Incoming incoming, Incoming::begin(head, terms, staging_));
    for (std::size_t i = 0; i < 3; ++i) FLUVIAL_TRY(incoming.chunk(i, test_chunk(values, i)));
    const Digest digest = test_sha256(values);
    return incoming.end(wire::digest_to_proto(digest), test_trailer().span());
  }
};

TEST_F(LateUpdates, EnterWithTheBaseOfTheirOwnRound) {
  const std::vector<float> values = test_values(1);
  const auto arrival = bring(head_from(3, 7), late_terms(), values);
  ASSERT_TRUE(arrival.ok()) << arrival.error().to_string();
  const round::Contribution* entry = arrival->what.contributors.find(SiteId(7));
  EXPECT_EQ(entry->base, ModelVersion(3));
  EXPECT_EQ(entry->admitted, ModelVersion(4));
  EXPECT_EQ(arrival->round, RoundId(5));
  EXPECT_TRUE(bring(head_from(2, 7), late_terms(), values).ok());
}

TEST_F(LateUpdates, AreTurnedAwayWithoutBeingDropped) {
  const std::vector<float> values = test_values(1);
  const auto refused = [&](const UpdateHead& head, const Terms& terms) {
    const auto arrival = bring(head, terms, values);
    return !arrival.ok() && !round::drops_update(arrival.error().code);
  };
  EXPECT_TRUE(refused(head_from(1, 7), late_terms())) << "too old";
  UpdateHead pretends = head_from(2, 7);
  pretends.base_version = ModelVersion(3);
  EXPECT_TRUE(refused(pretends, late_terms())) << "the digest says that it is older than it claims";
  UpdateHead heavy = head_from(3, 7);
  heavy.weight = round::kStaleWeightLimit;
  EXPECT_TRUE(refused(heavy, late_terms()));
  Terms none = late_terms();
  none.late.reset();
  EXPECT_TRUE(refused(head_from(3, 7), none)) << "a round without the rule";
  UpdateHead fresh = head_from(4, 7);
  fresh.base = digest_of(3);
  const auto wrong = bring(fresh, late_terms(), values);
  EXPECT_EQ(wrong.error().code, Code::kInvalidArgument) << "of this round, and from another model: as ever";
}

TEST_F(LateUpdates, CountWhatTheLoopSays) {
  const Terms terms = late_terms();
  NodeSum sum;
  sum.reset({terms.layout, 0, kTestScale, terms.late->factors});
  Serial parallel;
  const std::uint32_t omega[] = {296, 362, 512};  // from versions 2, 3, 4
  std::vector<__int128> expected(kTestValues, 0);
  round::ContributorSet all;
  for (unsigned char version = 2; version <= 4; ++version) {
    const std::uint32_t site = 10U + version;
    const std::vector<float> values = test_values(static_cast<float>(version) / 3);
    const auto arrival = bring(head_from(version, site), terms, values);
    ASSERT_TRUE(arrival.ok());
    const auto added = sum.add(*arrival, parallel);
    ASSERT_TRUE(added.ok()) << added.error().to_string();
    ASSERT_TRUE(all.merge(*added).ok());
    for (std::size_t i = 0; i < kTestValues; ++i) {
      const long double term =
          static_cast<long double>(values[i]) * site * omega[version - 2] * std::ldexp(1.0L, kTestScale - 9);
      expected[i] += static_cast<std::int64_t>(std::nearbyint(term));
    }
  }
  for (std::size_t i = 0; i < kTestValues; ++i) {
    ASSERT_EQ(sum.accumulator().sum()[i], static_cast<std::int64_t>(expected[i])) << "value " << i;
  }
  EXPECT_TRUE(sum.check_probes(all).ok());
  EXPECT_EQ(all.find(SiteId(13))->probe, std::int64_t{13 * 362} << (kTestScale - 9));
}

TEST_F(LateUpdates, WithoutAnyOrWithPowerZeroTheSumIsThePlainOne) {
  const std::vector<float> values = test_values(2);
  const auto sum_of = [&](const UpdateHead& head, const Terms& terms) {
    NodeSum sum;
    sum.reset({terms.layout, 0, kTestScale, terms.late ? terms.late->factors : std::vector<std::uint32_t>()});
    Serial parallel;
    const auto arrival = bring(head, terms, values);
    EXPECT_TRUE(arrival.ok() && sum.add(*arrival, parallel).ok());
    return std::vector<std::int64_t>(sum.accumulator().sum().begin(), sum.accumulator().sum().end());
  };
  Terms plain = late_terms();
  plain.late.reset();
  const std::vector<std::int64_t> expected = sum_of(head_from(4, 9), plain);
  EXPECT_EQ(sum_of(head_from(4, 9), late_terms()), expected) << "nobody is late";
  Terms undamped = late_terms();
  round::Lateness rule = *undamped.late;
  rule.factors = round::staleness_factors(2, 0);
  undamped.late = std::make_shared<const round::Lateness>(rule);
  EXPECT_EQ(sum_of(head_from(2, 9), undamped), expected) << "power 0: any base";
}

TEST_F(LateUpdates, APartialThatSaysNoVersionsIsFresh) {
  const Terms terms = late_terms();
  PartialHead head;
  head.child = NodeId(3);
  head.run = RunId(1);
  head.round = RoundId(5);
  head.chunk_count = 3;
  head.scale_bits = kTestScale;
  round::Contribution one{SiteId(7), Epoch(1), 7, {}, std::int64_t{7} << kTestScale, {}};
  ASSERT_TRUE(head.what.contributors.add(one).ok());
  EXPECT_TRUE(Incoming::begin(head, terms, staging_).ok());
  PartialHead mixed = head;
  mixed.what.contributors.clear();
  one.base = ModelVersion(3);
  one.admitted = ModelVersion(4);
  ASSERT_TRUE(mixed.what.contributors.add(one).ok());
  EXPECT_EQ(Incoming::begin(mixed, terms, staging_).error().code, Code::kDataLoss)
      << "said to be old, and summed as if it were fresh";
  one.probe = std::int64_t{7 * 362} << (kTestScale - 9);
  mixed.what.contributors.clear();
  ASSERT_TRUE(mixed.what.contributors.add(one).ok());
  EXPECT_TRUE(Incoming::begin(mixed, terms, staging_).ok());
}

TEST(SignedContributions, AreOfTheirOwnRoundAndBase) {
  const Terms terms = late_terms();
  round::ContributorSet none;
  const Brought brought{RunId(1), RoundId(5), digest_of(4), none, terms.late};
  round::Contribution one{SiteId(7), Epoch(1), 7, {}, 0, {}};
  one.base = one.admitted = ModelVersion(4);
  EXPECT_EQ(brought.signed_of(one)->round, RoundId(5));
  EXPECT_EQ(brought.signed_of(one)->base, digest_of(4));
  one.base = ModelVersion(2);
  EXPECT_EQ(brought.signed_of(one)->round, RoundId(3));
  EXPECT_EQ(brought.signed_of(one)->base, digest_of(2));
  one.base = ModelVersion(1);
  EXPECT_FALSE(brought.signed_of(one));
}

}  // namespace
}  // namespace fluvial::transfer
