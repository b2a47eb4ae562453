// A model that comes before the coordinator has signed its name, and what is checked by the tree digest that it signed.
#include "core/digest/model_digest.h"
#include "core/tree/test_model_receiver.h"

namespace fluvial::tree {
namespace {

class AheadTest : public ModelReceiverTest {
 protected:
  static Digest tree(const Model& model) {
    Serial serial;
    return *model_tree_digest(serial, model.bytes.span());
  }
  static Model unnamed(const Model& model) {
    round::ModelRef ref = model.ref;
    ref.digest = tree(model);
    return {ref, Buffer::copy_of(model.bytes.span())};
  }
  void ahead(const Model& unnamed) {
    on_strand([&] { receiver_.ahead(unnamed.ref); });
  }
  void name(const Model& model) {
    on_strand([&] {
      receiver_.known(model.ref, tree(model));
      receiver_.want(model.ref);
    });
  }
  void give_all(const Model& model) {
    ASSERT_TRUE(give_begin(model, 0).ok());
    ASSERT_TRUE(give(model, 0, 250).ok());
    ASSERT_TRUE(give(model, 250, 400).ok());
  }
  // All of it, by its name.
  void expect_fetched(const Model& model) {
    EXPECT_EQ(requested(model), 0u);
    give_all(model);
    expect_complete(model);
  }
  static net::Awaitable<Status> on_pool(Runtime* runtime) {
    co_return co_await runtime->pool.run([] { return Status{}; });
  }
  // What the receiver has begun on its strand and on the pool is done.
  void settle() {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(runtime_.run(on_pool(&runtime_.get())).ok());
    }
  }
  double used(const char* outcome) { return counted("models_ahead_total", {{"outcome", outcome}}); }

  const Model one_ = model(1);
  const Model early_ = unnamed(one_);
};

TEST_F(AheadTest, IsKeptUntilItIsNamed) {
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u) << "by its tree digest";
  give_all(early_);
  settle();
  EXPECT_TRUE(complete_.empty()) << "nobody has signed that it is a model of the run";
  name(one_);
  expect_complete(one_);
  EXPECT_TRUE(posted_.empty());
  EXPECT_EQ(used("used"), 1);
  EXPECT_EQ(used("dropped"), 0);
}

TEST_F(AheadTest, NamedInTheMiddleItGoesOn) {
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u);
  ASSERT_TRUE(give_begin(early_, 0).ok());
  ASSERT_TRUE(give(early_, 0, 250).ok());
  name(one_);
  ASSERT_TRUE(give(early_, 250, 400).ok());
  expect_complete(one_);
  EXPECT_TRUE(posted_.empty()) << "nothing is sent twice";
}

TEST_F(AheadTest, NamedBeforeAnythingCameItIsNotAskedForTwice) {
  ahead(early_);
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u);
  name(one_);
  EXPECT_TRUE(posted_.empty()) << "over a long line all of it would come twice";
  give_all(early_);
  expect_complete(one_);
  EXPECT_TRUE(posted_.empty());
}

TEST_F(AheadTest, IsNotUsedForAModelWithAnotherTree) {
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u);
  give_all(early_);
  Model other = model(2);
  other.ref.version = one_.ref.version;
  name(other);
  expect_fetched(other);
  EXPECT_EQ(used("dropped"), 1);
}

TEST_F(AheadTest, IsNotUsedWhereNobodySignedATree) {
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u);
  give_all(early_);
  want(one_);
  expect_fetched(one_);
}

TEST_F(AheadTest, DamagedItIsFetchedOnceItIsNamed) {
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u);
  ASSERT_TRUE(give_begin(early_, 0).ok());
  ASSERT_TRUE(give(early_, 0, 400, std::byte{1}).ok());
  while (used("dropped") == 0) settle();
  EXPECT_TRUE(posted_.empty());
  EXPECT_TRUE(refused_.empty()) << "nobody waits for it";
  name(one_);
  expect_fetched(one_);
}

TEST_F(AheadTest, AnotherSessionGoesOnWithItOnceItIsNamed) {
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u);
  ASSERT_TRUE(give_begin(early_, 0).ok());
  ASSERT_TRUE(give(early_, 0, 250).ok());
  reconnect();
  EXPECT_TRUE(posted_.empty()) << "this parent may not have it";
  name(one_);
  EXPECT_EQ(requested(one_), 250u);
  ASSERT_TRUE(give_begin(one_, 250).ok());
  ASSERT_TRUE(give(one_, 250, 400).ok());
  expect_complete(one_);
}

// A parent that lies has this node fetch a few of them.
TEST_F(AheadTest, AfterManyOfWhichNoneWasNamedNoMoreComes) {
  for (std::uint64_t version = 1; version <= 5; ++version) {
    ahead(unnamed(model(version)));
    EXPECT_EQ(requested(unnamed(model(version))), 0u);
  }
  ahead(unnamed(model(6)));
  EXPECT_TRUE(posted_.empty());
  EXPECT_EQ(used("dropped"), 4);
  name(one_);
  expect_fetched(one_);
  ahead(unnamed(model(6)));
  EXPECT_EQ(requested(unnamed(model(6))), 0u) << "one was named: the parent does what it says";
}

// Its owner is in the middle of what named it.
TEST_F(AheadTest, IsHandedOnAfterTheNamingIsOver) {
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u);
  give_all(early_);
  settle();
  on_strand([&] {
    receiver_.known(one_.ref, tree(one_));
    receiver_.want(one_.ref);
    EXPECT_TRUE(complete_.empty());
  });
  expect_complete(one_);
}

TEST_F(AheadTest, NothingIsTakenForTheNameOfAModelWithoutATree) {
  Model nothing{one_.ref, Buffer::copy_of(one_.bytes.span())};
  nothing.ref.digest = Digest{};
  ahead(nothing);
  EXPECT_EQ(requested(nothing), 0u);
  want(one_);
  expect_fetched(one_);
}

TEST_F(AheadTest, LeavesAloneWhatIsWanted) {
  want(one_);
  EXPECT_EQ(requested(one_), 0u);
  ahead(unnamed(model(2)));
  EXPECT_TRUE(posted_.empty());
  give_all(one_);
  expect_complete(one_);
}

TEST_F(AheadTest, OfARunThatEndedNothingStays) {
  ahead(early_);
  EXPECT_EQ(requested(early_), 0u);
  give_all(early_);
  on_strand([&] {
    receiver_.forget_ahead(RunId(2));
    receiver_.forget_ahead(one_.ref.run);
  });
  settle();
  name(one_);
  EXPECT_EQ(requested(one_), 0u);
  EXPECT_TRUE(complete_.empty());
}

// What is signed decides: with a tree the SHA-256 is not made, and must not be what a child relies on.
TEST_F(AheadTest, AModelIsCheckedByTheTreeThatWasSigned) {
  Model odd = model(1);
  odd.ref.digest[0] ^= std::byte{1};
  name(odd);
  EXPECT_EQ(requested(odd), 0u);
  give_all(odd);
  expect_complete(odd);
  const Model two = model(2);
  on_strand([&] {
    receiver_.known(two.ref, tree(one_));
    receiver_.want(two.ref);
  });
  EXPECT_EQ(requested(two), 0u);
  give_all(two);
  EXPECT_EQ(refused_.take(), two.ref);
}

// More than one part of the tree, and hashed while it comes.
TEST_F(AheadTest, OfManyPartsEachCounts) {
  constexpr std::uint64_t kManyValues = 2'500'000;
  std::vector<float> values(kManyValues, 2.0F);
  const Buffer bytes = Buffer::copy_of(std::as_bytes(std::span(values)));
  const Model large{{RunId(1), ModelVersion(3), sha256(bytes.span()), bytes.size()}, Buffer::copy_of(bytes.span())};
  for (const std::byte flip : {std::byte{1}, std::byte{0}}) {
    name(large);
    EXPECT_EQ(requested(large), 0u);
    ASSERT_TRUE(give_begin(large, 0, schema(kManyValues)).ok());
    for (std::uint64_t at = 0; at < bytes.size(); at += 1 << 20) {
      const std::uint64_t end = std::min<std::uint64_t>(at + (1 << 20), bytes.size());
      ASSERT_TRUE(give(large, at, end, at == 5 << 20 ? flip : std::byte{0}).ok());
    }
    if (flip != std::byte{0}) {
      EXPECT_EQ(refused_.take(), large.ref);
    }
  }
  expect_complete(large);
}

TEST_F(FormReceiverTest, ADifferenceMayComeAheadOfItsName) {
  Serial serial;
  const aggregate::EncodedModel sent = encoded(next_, before_, "delta:fp16");
  Model early{next_.ref, Buffer::copy_of(next_.bytes.span())};
  early.ref.digest = *model_tree_digest(serial, next_.bytes.span());
  on_strand([&] { receiver_.ahead(early.ref); });
  EXPECT_EQ(wire::from_proto(request().have()).value(), before_.ref);
  ASSERT_TRUE(give_form(early, sent.form).ok());
  ASSERT_TRUE(give_bytes(early, sent.bytes.span(), 0, sent.bytes.size()).ok());
  on_strand([&] {
    receiver_.known(next_.ref, early.ref.digest);
    receiver_.want(next_.ref);
  });
  expect_complete(next_);
}

}  // namespace
}  // namespace fluvial::tree
