#include "core/transfer/inflow.h"

#include <gmock/gmock.h>

#include "core/transfer/node_sum.h"
#include "core/transfer/test_support.h"

namespace fluvial::transfer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// An owner that admits whatever the test tells it to.
class Owner final : public Receiver {
 public:
  Result<Terms> admit(const UpdateHead& head) override {
    FLUVIAL_TRY(check_pass(head, open));
    if (!verdict.ok()) return verdict.error();
    Terms terms = test_terms();
    terms.from = open;
    return terms;
  }
  Result<Terms> admit(const PartialHead& head) override {
    FLUVIAL_TRY(admit_partial(
        head, *book, [](SiteId) { return true; }, [&] { return verdict; },
        [&](const auto& conflicts) { accused(head.run, head.round, head.child, conflicts); }));
    return test_terms();
  }
  std::vector<SiteId> without(const PartialHead&) override { return {SiteId(5)}; }
  void arrived(StagedArrival arrival) override { arrivals.push_back(std::move(arrival)); }
  void refused(RunId, RoundId, const round::MadeFrom& from, const round::Refusal& refusal) override {
    refusals.push_back(refusal);
    refused_from = from;
  }
  void accused(RunId, RoundId, NodeId, const std::vector<round::Refusal>& conflicts) override {
    accusations.insert(accusations.end(), conflicts.begin(), conflicts.end());
  }
  bool still_takes(const UpdateHead&) override { return takes; }
  bool knows_authors() override { return is_root; }

  const RoundBook* book = nullptr;
  bool is_root = true;
  bool takes = true;
  Status verdict;
  round::MadeFrom open;
  std::vector<StagedArrival> arrivals;
  std::vector<round::Refusal> refusals;
  round::MadeFrom refused_from;  // the last of them
  std::vector<round::Refusal> accusations;
};

class InflowTest : public TransferTest {
 protected:
  InflowTest() {
    owner_.book = &book_;
    book_.open(RunId(1), RoundId(1));
  }
  // Brings an update the whole way. Returns the code of its refusal, if it was refused.
  std::optional<Code> bring(const UpdateHead& head, const std::vector<float>& values, std::size_t from = 0) {
    Inflow in(head);
    Status taken = in.admit(book_, owner_);
    if (taken.ok()) taken = in.start(staging_);
    std::optional<Code> told;
    if (!taken.ok()) told = refuse(in, taken.error());
    for (std::size_t i = from; i < 3; ++i) EXPECT_TRUE(in.chunk(i, test_chunk(values, i)).ok());
    taken = in.end(end_of(values), test_trailer().span(), find_forged_);
    if (taken.ok()) taken = in.hand_over(book_, owner_);
    if (!taken.ok()) told = refuse(in, taken.error());
    return told;
  }
  // A partial of this site alone, whose update had these values. As above.
  std::optional<Code> bring_partial(std::uint32_t site, const std::vector<float>& values) {
    PartialHead head = partial_of(site, values);
    round::Contribution entry = *head.what.contributors.find(SiteId(site));
    entry.probe = static_cast<std::int64_t>(entry.weight) << kTestScale;
    head.what.contributors.clear();
    EXPECT_TRUE(head.what.contributors.add(entry).ok());
    head.chunk_count = 3;
    head.scale_bits = kTestScale;
    NodeSum sum;
    sum.reset({{kTestValues, kTestChunkValues}, 0, kTestScale});
    Inflow in(head);
    Status taken = in.admit(book_, owner_);
    if (taken.ok()) taken = in.start(staging_);
    Sha256 digest;
    for (std::size_t i = 0; taken.ok() && i < 3; ++i) {
      Buffer chunk = sum.pack_chunk(i);
      digest.update(chunk.span());
      taken = in.chunk(i, std::move(chunk));
    }
    v1::UpdateEnd end;
    end.set_sha256(wire::digest_to_proto(digest.finish()));
    if (taken.ok()) taken = in.end(end, {}, find_forged_);
    if (taken.ok()) taken = in.hand_over(book_, owner_);
    if (taken.ok()) return std::nullopt;
    return refuse(in, taken.error());
  }
  Code refuse(Inflow& in, const Error& error) {
    receipt_ = in.refuse(error, book_, owner_);
    EXPECT_TRUE(in.is_refused());
    return error.code;
  }
  PartialHead partial_of(std::uint32_t site, const std::vector<float>& values) const {
    PartialHead head;
    head.child = NodeId(2);
    head.run = RunId(1);
    head.round = RoundId(1);
    head.sequence = 3;
    const UpdateHead of = test_head(site);
    const Status added = head.what.contributors.add(
        {of.site, of.lease, of.weight, test_sha256(values), 0, {}, of.incarnation, of.submission});
    EXPECT_TRUE(added.ok());
    return head;
  }

  static v1::UpdateEnd end_of(const std::vector<float>& values) {
    v1::UpdateEnd end;
    end.set_sha256(test_digest(values));
    end.set_signature(std::string(64, 's'));
    return end;
  }

  RoundBook book_;  // after the budget that it counts against
  Owner owner_;
  std::vector<round::Refusal> forged_;  // what is found to be
  std::vector<SiteId> looked_at_;       // that were to be looked at
  FindForged find_forged_ = [this](const Brought& brought) {
    for (const auto& [site, entry] : brought.contributors.entries()) looked_at_.push_back(site);
    return forged_;
  };
  v1::Envelope receipt_;
};

TEST_F(InflowTest, WhatIsOfAnotherPassIsStaleAndHarmsNobody) {
  owner_.open = {1, {std::byte{1}}};
  EXPECT_EQ(bring(test_head(7), test_values(1)), Code::kStale);
  EXPECT_THAT(owner_.refusals, IsEmpty()) << "its site may come with what fits";
  EXPECT_EQ(receipt_.receipt().pass(), 0u) << "it is of the pass that the update is of";
  UpdateHead fits = test_head(7, 2);
  fits.from = {1, {std::byte{2}}};
  EXPECT_EQ(bring(fits, test_values(1)), Code::kStale) << "of another mean";
  EXPECT_EQ(receipt_.receipt().pass(), 1u);
  fits.from = owner_.open;
  EXPECT_EQ(bring(fits, test_values(1)), std::nullopt);
  ASSERT_EQ(owner_.arrivals.size(), 1u);
  EXPECT_EQ(owner_.arrivals[0].from, owner_.open);
  EXPECT_EQ(owner_.arrivals[0].what.contributors.find(SiteId(7))->from, owner_.open) << "as its site signed it";
  UpdateHead damaged = test_head(8);
  damaged.from = owner_.open;
  damaged.value_count = 1;
  EXPECT_EQ(bring(damaged, test_values(1)), Code::kInvalidArgument);
  EXPECT_EQ(owner_.refused_from, owner_.open) << "the owner may have another pass open by then";
}

TEST_F(InflowTest, AWholeUpdateIsHandedOver) {
  EXPECT_FALSE(bring(test_head(7), test_values(1)));
  ASSERT_EQ(owner_.arrivals.size(), 1u);
  EXPECT_EQ(owner_.arrivals[0].update()->site, SiteId(7));
  EXPECT_THAT(owner_.refusals, IsEmpty());
}

TEST_F(InflowTest, ARefusalSaysOfWhichRoundTheUpdateIs) {
  owner_.verdict = Error{Code::kInvalidArgument, "made up"};
  UpdateHead old = test_head(7);
  old.round = RoundId(3);
  old.base_version = ModelVersion(1);
  EXPECT_EQ(bring(old, test_values(1)), Code::kInvalidArgument);
  UpdateHead fresh = old;
  fresh.base_version = ModelVersion(2);
  EXPECT_EQ(bring(fresh, test_values(1)), Code::kInvalidArgument);
  ASSERT_EQ(owner_.refusals.size(), 2U);
  EXPECT_EQ(owner_.refusals[0].own, RoundId(2));
  EXPECT_EQ(owner_.refusals[1].own_round(RoundId(3)), RoundId(3));
}

TEST_F(InflowTest, AContradictionSaysOfWhichRoundTheUpdateIs) {
  EXPECT_FALSE(bring(test_head(7), test_values(1)));
  PartialHead head = partial_of(7, test_values(2));
  round::Contribution old = *head.what.contributors.find(SiteId(7));
  old.base = ModelVersion(3);
  old.admitted = ModelVersion(5);
  head.what.contributors.clear();
  ASSERT_TRUE(head.what.contributors.add(old).ok());
  const std::vector<round::Refusal> conflicts = book_.conflicts(head);
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].own, RoundId(4));
}

TEST_F(InflowTest, AnUpdateBringsItsSitesSignature) {
  EXPECT_FALSE(bring(test_head(7), test_values(1)));
  const round::Contribution* const entry = owner_.arrivals.at(0).what.contributors.find(SiteId(7));
  ASSERT_TRUE(entry != nullptr && entry->signature);
  EXPECT_EQ(as_text(*entry->signature), std::string(64, 's'));
  EXPECT_THAT(looked_at_, ElementsAre(SiteId(7)));
}

TEST_F(InflowTest, WhatItsSiteDidNotSignIsNotHandedOver) {
  forged_ = {{SiteId(7), {Code::kUnauthenticated, "not its own"}}};
  EXPECT_EQ(bring(test_head(7), test_values(1)), Code::kUnauthenticated);
  EXPECT_THAT(owner_.arrivals, IsEmpty());
  EXPECT_THAT(owner_.refusals, ElementsAre(forged_[0]));
  EXPECT_EQ(budget_.bytes_used(), 0u);
}

TEST_F(InflowTest, APartialIsToDoWithoutWhatItsSitesDidNotSign) {
  PartialHead head = partial_of(7, test_values(1));
  head.what.contributors.clear();
  head.chunk_count = 0;
  head.scale_bits = kTestScale;
  forged_ = {{SiteId(7), {Code::kUnauthenticated, "not its own"}}};
  Inflow in(head);
  ASSERT_TRUE(in.admit(book_, owner_).ok());
  ASSERT_TRUE(in.start(staging_).ok());
  v1::UpdateEnd end;
  end.set_sha256(wire::digest_to_proto(sha256({})));
  const Status ended = in.end(end, {}, find_forged_);
  ASSERT_EQ(ended.error().code, Code::kUnauthenticated);
  refuse(in, ended.error());
  EXPECT_THAT(receipt_.receipt().without(), ElementsAre(5, 7));
  EXPECT_THAT(owner_.refusals, IsEmpty()) << "their own contributions count in a later partial";
  EXPECT_THAT(owner_.arrivals, IsEmpty());
}

TEST_F(InflowTest, OneThatIsTurnedAwayIsSkippedAndOnlyItsOwnFaultIsTheRoundsConcern) {
  owner_.verdict = Error{Code::kStale, "an older lease"};
  EXPECT_EQ(bring(test_head(7), test_values(1)), Code::kStale);
  EXPECT_THAT(owner_.refusals, IsEmpty()) << "it may come under its lease";
  EXPECT_EQ(receipt_.receipt().site(), 7u);
  owner_.verdict = Error{Code::kInvalidArgument, "too heavy"};
  EXPECT_EQ(bring(test_head(7), test_values(1)), Code::kInvalidArgument);
  EXPECT_EQ(owner_.refusals.size(), 1u);
  EXPECT_THAT(owner_.arrivals, IsEmpty());
  EXPECT_EQ(budget_.bytes_used(), 0u);
}

TEST_F(InflowTest, OneThatGoesOnFromWhatIsNotHereBeginsAnew) {
  UpdateHead head = test_head(7);
  head.first_chunk = 2;
  EXPECT_EQ(bring(head, test_values(1), 2), Code::kUnavailable);
  EXPECT_THAT(owner_.refusals, IsEmpty());
}

TEST_F(InflowTest, WhatWasCutOffGoesOn) {
  const std::vector<float> values = test_values(1);
  {
    Inflow in(test_head(7));
    ASSERT_TRUE(in.admit(book_, owner_).ok() && in.start(staging_).ok());
    for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(in.chunk(i, test_chunk(values, i)).ok());
    book_.keep(NodeId(7), *in.cut_off());
  }
  UpdateHead head = test_head(7);
  head.first_chunk = 2;
  Inflow in(head);
  ASSERT_TRUE(in.admit(book_, owner_).ok());
  EXPECT_EQ(in.kept_chunks(), 2u);
  ASSERT_TRUE(in.start(staging_).ok() && in.chunk(2, test_chunk(values, 2)).ok());
  ASSERT_TRUE(in.end(end_of(values), test_trailer().span(), find_forged_).ok() && in.hand_over(book_, owner_).ok());
  EXPECT_EQ(owner_.arrivals.size(), 1u);
}

TEST_F(InflowTest, WhoIsCountedAlreadyIsHeldToWhatItSaidByTheTrailerAlone) {
  EXPECT_FALSE(bring(test_head(7), test_values(1)));
  owner_.verdict = Error{Code::kAlreadyExists, "counted already"};
  EXPECT_EQ(bring(test_head(7), test_values(1)), Code::kAlreadyExists) << "the same again is harmless";
  EXPECT_THAT(owner_.refusals, IsEmpty());
  EXPECT_EQ(bring(test_head(7), test_values(2)), Code::kConflict);
  ASSERT_EQ(owner_.refusals.size(), 1u);
  EXPECT_EQ(owner_.refusals[0].error.code, Code::kConflict);
  const std::vector<round::Contribution>& proof = owner_.refusals[0].proof;
  ASSERT_EQ(proof.size(), 2u) << "both contents, as the site signed them";
  EXPECT_EQ(proof[0].digest, test_sha256(test_values(1)));
  EXPECT_EQ(proof[1].digest, test_sha256(test_values(2)));
  EXPECT_TRUE(proof[0].signature && proof[1].signature);
}

TEST_F(InflowTest, WhoBringsTwoContentsIsRefusedAndShown) {
  EXPECT_FALSE(bring(test_head(7), test_values(1)));
  EXPECT_EQ(bring(test_head(7), test_values(2)), Code::kConflict);
  EXPECT_EQ(owner_.arrivals.size(), 1u);
  ASSERT_EQ(owner_.refusals.size(), 1u);
  EXPECT_EQ(owner_.refusals[0].proof.size(), 2u);
}

// An aggregator has no keys of those further down: what a child of its says of them is that child's word.
TEST_F(InflowTest, WhatAChildSaysOfASiteIsNotHeldAgainstTheSite) {
  owner_.is_root = false;
  EXPECT_FALSE(bring_partial(7, test_values(2)));
  EXPECT_FALSE(bring(test_head(7), test_values(1))) << "its own update is its own";
  EXPECT_EQ(owner_.arrivals.size(), 2u);
  EXPECT_THAT(owner_.refusals, IsEmpty());

  EXPECT_EQ(bring_partial(7, test_values(3)), Code::kConflict) << "the other way round";
  EXPECT_THAT(owner_.refusals, IsEmpty());
}

TEST_F(InflowTest, TheRootHoldsASiteToWhatAPartialBrings) {
  EXPECT_FALSE(bring_partial(7, test_values(2)));
  EXPECT_EQ(bring(test_head(7), test_values(1)), Code::kConflict);
}

TEST_F(InflowTest, APartialThatContradictsIsRefusedWithWhomItMustDoWithout) {
  EXPECT_FALSE(bring(test_head(7), test_values(1)));
  Inflow in(partial_of(7, test_values(2)));
  const Status admitted = in.admit(book_, owner_);
  ASSERT_FALSE(admitted.ok());
  EXPECT_EQ(refuse(in, admitted.error()), Code::kConflict);
  EXPECT_THAT(owner_.refusals, IsEmpty()) << "the site may have said nothing of the kind";
  ASSERT_EQ(owner_.accusations.size(), 1u) << "once";
  EXPECT_EQ(owner_.accusations[0].site, SiteId(7));
  EXPECT_EQ(owner_.accusations[0].proof.size(), 2u);
  EXPECT_EQ(receipt_.receipt().sequence(), 3u);
  EXPECT_THAT(receipt_.receipt().without(), ElementsAre(5u, 7u));
}

TEST_F(InflowTest, APartialMayNameThoseBelowItsSenderAlone) {
  const Status admitted = admit_partial(
      partial_of(7, test_values(1)), book_, [](SiteId) { return false; }, [] { return Status{}; },
      [](const auto&) { FAIL() << "nobody contradicted itself"; });
  EXPECT_EQ(admitted.error().code, Code::kPermissionDenied);
}

// Else whoever sends a chunk now and then would hold its place for ever.
TEST_F(InflowTest, AnUpdateThatNoRoundTakesAnyMoreGivesItsPlaceBack) {
  const std::vector<float> values = test_values(1);
  Inflow in(test_head(7));
  ASSERT_TRUE(in.admit(book_, owner_).ok() && in.start(staging_).ok());
  EXPECT_TRUE(in.may_go_on(owner_).ok());
  EXPECT_TRUE(in.chunk(0, test_chunk(values, 0)).ok());
  EXPECT_GT(budget_.bytes_used(), 0u);
  owner_.takes = false;
  const Status over = in.may_go_on(owner_);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(refuse(in, over.error()), Code::kStale) << "its site keeps it";
  EXPECT_EQ(budget_.bytes_used(), 0u);
  EXPECT_TRUE(in.may_go_on(owner_).ok()) << "it is said once";
}

}  // namespace
}  // namespace fluvial::transfer
