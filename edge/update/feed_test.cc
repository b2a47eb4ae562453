// What may be sent of an update while it is encoded: the bytes of the submission that becomes durable, chunk by chunk,
// and nothing that a parent would refuse.
#include "edge/update/feed.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "edge/update/test_support.h"
#include "kernels/test_values.h"

namespace fluvial::edge {
namespace {

Buffer copy_of(const SharedBytes& chunk) { return Buffer::copy_of(chunk.bytes); }

// One feed, with all that ever was in it.
struct Fed {
  std::shared_ptr<const Feed> feed;
  std::vector<Buffer> chunks;
  std::vector<std::size_t> after_step;  // so many were there
};

class FeedTest : public StoreTest {
 protected:
  void note(const std::shared_ptr<const Feed>& feed) {
    if (!feed) return;
    if (fed_.empty() || fed_.back().feed != feed) fed_.push_back({feed, {}, {}});
    Fed& fed = fed_.back();
    while (const auto chunk = feed->chunk(fed.chunks.size())) fed.chunks.push_back(copy_of(*chunk));
    fed.after_step.push_back(fed.chunks.size());
  }
  // Nothing is durable before the last step.
  Result<store::PendingUpdate> encode(const Training& training) {
    const UpdateJob job = training.job();
    Encoding encoding(job, *store_, serial_);
    fed_.clear();
    for (;;) {
      FLUVIAL_ASSIGN(std::optional<store::PendingUpdate> durable, encoding.step());
      if (durable) return std::move(*durable);
      EXPECT_FALSE(store_->pending(kRun)->has_value());
      note(encoding.feed());
    }
  }
  // An update of these values, of bounds that a residual soon reaches.
  static Training bounded(std::uint64_t round, const std::string& codec, const std::vector<float>& update) {
    Training made = training(round, codec, update, std::vector<float>(kValues, 0.0F));
    made.plan.value_abs_max = 1;
    return made;
  }

  std::vector<Fed> fed_;
};

TEST(Feed, HoldsChunksInTheirOrderUntilItIsClosed) {
  store::PendingInfo info;
  info.start.value_count = 3;
  info.start.integer_count = 2;
  Feed feed(info);
  EXPECT_TRUE(feed.info().has_probe()) << "as its trailer will have one";
  EXPECT_FALSE(feed.chunk(0));
  feed.add(SharedBytes::from(Buffer::copy_of(as_byte_span("one"))));
  feed.add(SharedBytes::from(Buffer::copy_of(as_byte_span("two"))));
  EXPECT_EQ(as_text(feed.chunk(0)->bytes), "one");
  EXPECT_EQ(as_text(feed.chunk(1)->bytes), "two");
  EXPECT_FALSE(feed.chunk(2));
  feed.close();
  EXPECT_FALSE(feed.chunk(0));
  feed.add(SharedBytes::from(Buffer(1)));
  EXPECT_FALSE(feed.chunk(0)) << "nothing comes after the end";
}

TEST(Feed, HoldsNoMoreThanPTakes) {
  store::PendingInfo info;
  info.start.value_count = 2;
  Feed feed(info);
  feed.add(SharedBytes::from(Buffer(4)));
  feed.add(SharedBytes::from(Buffer(4)));
  EXPECT_TRUE(feed.chunk(1));
  feed.add(SharedBytes::from(Buffer(1)));
  EXPECT_FALSE(feed.chunk(0));
  EXPECT_FALSE(feed.chunk(2));
}

TEST_F(FeedTest, WhatIsFedIsWhatIsDurableByteForByte) {
  std::uint64_t round = 0;
  for (const std::string codec : {"fp32", "bf16", "int8", "randk:ratio=0.1", "topk:ratio=0.05"}) {
    SCOPED_TRACE(codec);
    const store::PendingUpdate durable = encode(training(++round, codec)).value();
    ASSERT_EQ(fed_.size(), 1u);
    const store::PendingInfo& said = fed_.front().feed->info();
    EXPECT_EQ(said.incarnation, durable.info().incarnation);
    EXPECT_EQ(said.submission, durable.info().submission);
    EXPECT_EQ(said.has_probe(), durable.info().has_probe());
    EXPECT_EQ(said.start.weight, durable.info().start.weight);
    EXPECT_EQ(said.start.base, durable.info().start.base);
    EXPECT_EQ(said.start.digest_kind, durable.info().start.digest_kind);
    EXPECT_EQ(said.digest, Digest{});
    ASSERT_EQ(fed_.front().chunks.size(), durable.info().start.chunk_count);
    for (std::uint64_t i = 0; i < fed_.front().chunks.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(fed_.front().chunks[i].span(), durable.read_chunk(i)->span())) << i;
    }
    EXPECT_FALSE(fed_.front().feed->chunk(0)) << "the durable one has them";
    resolve(round, round::Outcome::kCounted);
  }
}

// Before the next one is made: a value of it that is no number is found only then.
TEST_F(FeedTest, AChunkIsFedBeforeTheNextOneIsMade) {
  ASSERT_TRUE(encode(training(1, "int8")).ok());
  EXPECT_EQ(fed_.front().after_step, (std::vector<std::size_t>{1, 2, 3, 4, 4}));
  resolve(1, round::Outcome::kCounted);
  std::vector<float> local = draw(102);
  local[3 * kChunk] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(encode(training(2, "int8", draw(2), local)).error().code, Code::kDataLoss);
  EXPECT_EQ(fed_.front().after_step, (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_FALSE(fed_.front().feed->chunk(0)) << "it is over";
  EXPECT_FALSE(store_->pending(kRun)->has_value());
}

// The residual of a late round takes the last chunk beyond the bound: what is sent of it is another submission.
TEST_F(FeedTest, WhatIsFittedIsFedAnew) {
  std::vector<float> update(kValues, 0.0F);
  std::fill(update.begin() + 3 * kChunk, update.end(), 0.75F);
  ASSERT_TRUE(fold_update(bounded(1, "fp32", update).job(), *store_, serial_).ok());
  const store::PendingUpdate durable = encode(bounded(2, "fp32", update)).value();
  ASSERT_EQ(fed_.size(), 2u);
  EXPECT_EQ(fed_[0].chunks.size(), 3u) << "as far as nothing was wrong";
  EXPECT_FALSE(fed_[0].feed->chunk(0));
  EXPECT_LT(fed_[0].feed->info().submission, fed_[1].feed->info().submission);
  EXPECT_EQ(fed_[1].feed->info().submission, durable.info().submission);
  ASSERT_EQ(fed_[1].chunks.size(), 4u);
  EXPECT_EQ(decoded(durable)[kValues - 1], 1.0F);
}

// Late rounds fill the residual. An independent screen of every chunk that could have been sent, as parents do it.
TEST_F(FeedTest, NothingIsFedThatAParentWouldRefuse) {
  std::vector<std::string> codecs = kernels::test_values::codec_texts();
  std::erase_if(codecs, [](const std::string& text) {
    const kernels::CodecSpec spec = kernels::parse_codec(text).value();
    return spec.kind == kernels::CodecKind::kPowerSgd || spec.vote;
  });
  for (const double norm_max : {0.0, 25.0}) {  // of one update it is 18
    std::size_t begun_anew = 0;
    for (const std::string& name : codecs) {
      SCOPED_TRACE(name);
      store::MemoryFileSystem files;
      store_ = open_store(files);
      const auto codec = kernels::make_codec(kernels::parse_codec(name).value()).value();
      for (std::uint64_t round = 1; round <= 8; ++round) {
        Training trained = bounded(round, name, draw(round, kValues, 2));
        trained.plan.update_norm_max = norm_max;
        ASSERT_TRUE(encode(trained).ok()) << round;
        ASSERT_FALSE(fed_.empty()) << round;
        for (const Fed& fed : fed_) {
          double norm_squared = 0;
          for (std::size_t i = 0; i < fed.chunks.size(); ++i) {
            const std::size_t count = std::min(kChunk, kValues - i * kChunk);
            std::vector<float> values(count);
            ASSERT_TRUE(codec->decode_chunk(fed.chunks[i].span(), values).ok());
            for (const float value : values) {
              ASSERT_LE(std::fabs(value), 1.0F);
              norm_squared += static_cast<double>(value) * static_cast<double>(value);
            }
          }
          if (norm_max > 0) ASSERT_LE(std::sqrt(norm_squared), norm_max * (1 + 1e-9));
        }
        begun_anew += fed_.size() - 1;
        resolve(round, round % 4 == 0 ? round::Outcome::kCounted : round::Outcome::kLate);
      }
      store_.reset();
    }
    EXPECT_GT(begun_anew, 0u) << "or nothing was shown";
  }
}

// Between any two steps: the store is as it was, here and after a power cut, and the same training gives the same
// chunks under another number.
TEST_F(FeedTest, GivenUpOnItsWayItLeavesNothing) {
  ASSERT_TRUE(fold_update(training(1, "int8").job(), *store_, serial_).ok());
  const Training trained = training(2, "int8");
  std::vector<std::uint64_t> numbers;
  for (std::size_t steps = 1; steps <= 5; ++steps) {
    const UpdateJob job = trained.job();
    std::shared_ptr<const Feed> feed;
    {
      Encoding encoding(job, *store_, serial_);
      for (std::size_t i = 0; i < steps; ++i) {
        const auto made = encoding.step();
        ASSERT_TRUE(made.ok() && !*made) << i;
      }
      feed = encoding.feed();
      EXPECT_TRUE(feed->chunk(0));
      const auto left = files_.after_power_cut();
      const std::unique_ptr<store::SiteStore> store = open_store(*left);
      EXPECT_FALSE(store->pending(kRun)->has_value());
      EXPECT_EQ(store->residual(kRun)->norm, store_->residual(kRun)->norm);
      EXPECT_GT(store->incarnation(), feed->info().incarnation) << "so that it cannot contradict what was sent";
    }
    EXPECT_FALSE(feed->chunk(0));
    EXPECT_FALSE(store_->pending(kRun)->has_value());
    EXPECT_EQ(files_.list("/site/tensors")->size(), 1u) << "the residual alone";
    numbers.push_back(feed->info().submission);
  }
  const store::PendingUpdate durable = encode(trained).value();
  EXPECT_GT(durable.info().submission, numbers.back());
  EXPECT_EQ(std::ranges::adjacent_find(numbers, std::greater_equal<>()), numbers.end());
}

}  // namespace
}  // namespace fluvial::edge
