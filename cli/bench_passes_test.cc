// The audit of rounds with several passes, against the kernels that the real nodes use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "cli/bench_audit.h"
#include "cli/bench_test_checks.h"
#include "cli/bench_update.h"
#include "core/aggregate/accumulator.h"
#include "core/aggregate/pass_mean.h"
#include "core/aggregate/scale.h"
#include "core/aggregate/server_optimizer.h"
#include "core/digest/submission_digest.h"
#include "core/round/probe.h"
#include "kernels/stream_key.h"
#include "kernels/vector.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kPassParams = 5'000;
constexpr std::uint64_t kPassSeed = 7;

using Sites = std::set<std::size_t>;  // from 0

// Who does what in a round: all, unless it says otherwise.
struct Course {
  Sites not_made = {};        // killed while they trained
  Sites missing[2] = {};      // in that pass; who is missing in the first is in the second, too
  std::string refused = {};   // with this code: who is missing
  std::uint64_t attempt = 1;  // that was committed
};

std::vector<std::span<const float>> spans_of(const std::vector<std::vector<float>>& vectors) {
  return {vectors.begin(), vectors.end()};
}

class PassFederation {
 public:
  PassFederation(const round::Plan& plan, const round::Schema& schema, std::vector<AuditSite> sites)
      : plan_(plan),
        sites_(std::move(sites)),
        codec_(kernels::make_codec(kernels::parse_codec(plan.codec).value()).value()),
        shapes_(schema, plan.chunk_values),
        state_(zeros(codec_->state_bytes(shapes_.schema()))),
        residuals_(sites_.size(), std::vector<float>(kPassParams)),
        optimizer_(aggregate::initial_state(plan.optimizer, kPassParams)),
        scale_(aggregate::scale_for(plan, sites_.size() * kBenchWeightMax).value()) {}

  json::object round(std::uint64_t number, std::vector<float>& model, const Course& course = {}) {
    const std::vector<std::vector<float>> had = train(number, model, course.not_made);
    std::vector<std::vector<float>> means;
    std::vector<Buffer> workspaces;
    json::array contributors[2];
    std::uint64_t weights = 0;
    for (const std::uint32_t pass : {0U, 1U}) {
      const kernels::ChunkLayout layout = codec_->pass_layout(shapes_.schema(), pass);
      aggregate::Accumulator sum(layout, 0, scale_);
      weights = 0;
      for (std::size_t s = 0; s < sites_.size(); ++s) {
        if (course.missing[0].contains(s) || (pass == 1 && course.missing[1].contains(s))) continue;
        weights += bench_weight(sites_[s].index);
        contributors[pass].push_back(send(pass, number, s, had[s], means, sum));
      }
      kernels::mean_of_sums(sum.sum(), scale_, weights, means.emplace_back(layout.value_count));
      sum_sha256_ = to_hex(sha256(std::as_bytes(sum.sum())));
    }
    json::array refused;
    for (const Sites& missing : course.missing) {
      for (const std::size_t s : missing) {
        const bool dropped = course.refused == "data_loss";
        if (!dropped && !course.not_made.contains(s)) residuals_[s] = had[s];
        if (!course.refused.empty())
          refused.push_back(json::object{{"site", sites_[s].node}, {"code", course.refused}});
      }
    }
    finish(number, means, weights, model);
    const Buffer mean = travelling(means[0], course.attempt);
    return {{"round", number},
            {"attempt", course.attempt},
            {"epoch", kEpoch},
            {"participants", sites_.size()},
            {"contributors", contributors[1]},
            {"refused", refused},
            {"passes", json::array{json::object{
                           {"pass", 0}, {"mean", to_hex(sha256(mean.span()))}, {"contributors", contributors[0]}}}},
            {"codec_state", json::object{{"sha256", to_hex(sha256(state_.span()))}, {"bytes", state_.size()}}},
            {"weight", weights},
            {"sum_sha256", sum_sha256_}};
  }

  const std::vector<float>& residual(std::size_t site) const { return residuals_[site]; }
  std::vector<float>& residual(std::size_t site) { return residuals_[site]; }
  Buffer& state() { return state_; }

 private:
  static constexpr std::uint64_t kEpoch = 40;

  static Buffer zeros(std::size_t size) {
    Buffer bytes(size);
    std::ranges::fill(bytes.span(), std::byte{0});
    return bytes;
  }
  static Buffer travelling(std::span<const float> mean, std::uint64_t attempt) {
    Buffer bytes =
        aggregate::begin_mean({Epoch(kEpoch), AttemptId(static_cast<std::uint32_t>(attempt)), 0}, mean.size());
    std::ranges::copy(mean, aggregate::mean_values(bytes).begin());
    return bytes;
  }
  std::vector<std::vector<float>> train(std::uint64_t number, const std::vector<float>& model, const Sites& not_made) {
    std::vector<std::vector<float>> had;
    for (std::size_t s = 0; s < sites_.size(); ++s) {
      std::vector<float>& p = had.emplace_back(kPassParams);
      if (not_made.contains(s)) continue;
      apply_update({kPassSeed, number, sites_[s].index}, model, p);
      kernels::pseudo_gradient(model, p, residuals_[s], p);
    }
    return had;
  }
  // Adds what the site sends in the pass; in the second its residual is then what that leaves.
  json::object send(std::uint32_t pass, std::uint64_t number, std::size_t s, std::span<const float> p,
                    const std::vector<std::vector<float>>& means, aggregate::Accumulator& sum) {
    Buffer workspace(codec_->workspace_bytes(shapes_.schema()));
    const kernels::PassInput input{.pass = pass, .reduced = pass == 0 ? std::span<const float>() : means[0]};
    const auto plan = codec_
                          ->prepare(shapes_.schema(), p, kernels::stream_key(plan_.seed, number, sites_[s].name), input,
                                    state_.span(), workspace.span())
                          .value();
    for (std::size_t part = 0; part < plan.parts; ++part) EXPECT_TRUE(codec_->prepare_part(plan, part).ok());
    const auto weight = bench_weight(sites_[s].index);
    SubmissionDigest digest(s % 2 == 0 ? DigestKind::kStream : DigestKind::kTree, plan.layout.chunk_count());
    for (std::size_t chunk = 0; chunk < plan.layout.chunk_count(); ++chunk) {
      const auto values = plan.layout.of(plan.values, chunk);
      Buffer bytes(codec_->encoded_bytes_max(values.size()));
      bytes.shrink(codec_->encode_chunk(plan, chunk, values, bytes.span()).value());
      digest.side_by_side(chunk, bytes.span());
      digest.in_order(bytes.span());
      EXPECT_TRUE(sum.add_chunk(*codec_, chunk, bytes.span(), static_cast<std::uint32_t>(weight)).ok());
    }
    const kernels::ChunkLayout& layout = shapes_.layout();
    for (std::size_t chunk = 0; pass == 1 && chunk < layout.chunk_count(); ++chunk) {
      EXPECT_TRUE(
          codec_->leave_chunk(plan, chunk, layout.of(p, chunk), layout.of(std::span(residuals_[s]), chunk)).ok());
    }
    return {{"site", sites_[s].node}, {"weight", weight}, {"digest", to_hex(digest.finish(round::probe_bytes()))}};
  }
  void finish(std::uint64_t number, const std::vector<std::vector<float>>& means, std::uint64_t weights,
              std::vector<float>& model) {
    Buffer workspace(codec_->workspace_bytes(shapes_.schema()));
    const auto spans = spans_of(means);
    const auto expand = codec_->prepare_expand(shapes_.schema(), spans, workspace.span()).value();
    const kernels::ChunkLayout& layout = shapes_.layout();
    const aggregate::ServerStep step(plan_.optimizer, layout, {}, number, weights);
    for (std::size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
      std::vector<float> update(layout.size(chunk));
      EXPECT_TRUE(codec_->expand_chunk(expand, chunk, update).ok());
      EXPECT_TRUE(step.apply(chunk, update, optimizer_, layout.of(std::span(model), chunk)).ok());
    }
    EXPECT_TRUE(
        codec_->settle(shapes_.schema(), kernels::stream_key(plan_.seed, number, ""), means[1], state_.span()).ok());
  }

  round::Plan plan_;
  std::vector<AuditSite> sites_;
  std::unique_ptr<kernels::Codec> codec_;
  aggregate::Shapes shapes_;
  Buffer state_;
  std::vector<std::vector<float>> residuals_;
  std::vector<float> optimizer_;
  int scale_;
  std::string sum_sha256_;
};

class PassesAuditTest : public ::testing::Test {
 protected:
  PassesAuditTest() { fill_model(kPassSeed, model_); }

  static round::Plan plan() {
    round::Plan plan;
    plan.codec = "powersgd:rank=3";
    plan.chunk_values = 512;
    plan.seed = 5;
    return plan;
  }
  // The federation takes the round, `slip` changes what is said of it, and the audit looks.
  Status follow(std::uint64_t number, const Course& course = {},
                const std::function<void(json::object& round, std::vector<float>& model)>& slip = {}) {
    const std::vector<float> base = model_;
    json::object round = federation_.round(number, model_, course);
    if (slip) slip(round, model_);
    return audit_.check_round(round, base, model_);
  }
  void expect_right(std::uint64_t number, const Course& course = {}) {
    const Status status = follow(number, course);
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  void expect_wrong(const std::string& what,
                    const std::function<void(json::object& round, std::vector<float>& model)>& slip) {
    expect_right(1);
    const Status status = follow(2, {}, slip);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, ::testing::HasSubstr(what));
  }
  void expect_residuals() { cli::expect_residuals(audit_, federation_, sites_); }

  const std::vector<AuditSite> sites_ = {{1, 12, "site-1"}, {2, 10, "site-2"}, {3, 11, "site-3"}};
  const round::Schema schema_ = bench_schema(kPassParams, true);
  PassFederation federation_{plan(), schema_, sites_};
  Audit audit_{plan(), kPassSeed, 1, sites_, kBenchWeightMax, schema_};
  std::vector<float> model_ = std::vector<float>(kPassParams);
};

TEST_F(PassesAuditTest, AgreesWithTheKernelsOverSeveralRounds) {
  for (std::uint64_t round = 1; round <= 4; ++round) expect_right(round, {.attempt = round});
  expect_residuals();
}

TEST_F(PassesAuditTest, WhoDropsOutBetweenThePassesHasAllThatItHad) {
  expect_right(1);
  expect_right(2, {.missing = {{}, {1}}});
  expect_residuals();
  expect_right(3, {.missing = {{0}, {1}}});
  expect_residuals();
  expect_right(4);
  expect_residuals();
}

TEST_F(PassesAuditTest, FindsOutWhetherALateUpdateWasEverMade) {
  expect_right(1);
  expect_right(2, {.missing = {{1}, {}}});
  expect_right(3, {.not_made = {1}, .missing = {{1}, {}}});
  expect_right(4, {.missing = {{1}, {2}}});
  expect_right(5);
  expect_residuals();
}

TEST_F(PassesAuditTest, WhatIsRefusedForWhatItIsIsDropped) {
  expect_right(1);
  expect_right(2, {.missing = {{}, {1}}, .refused = "data_loss"});
  expect_residuals();
  expect_right(3, {.missing = {{}, {2}}, .refused = "internal"});
  expect_residuals();
  expect_right(4);
}

TEST_F(PassesAuditTest, AgreesWithOtherOptimizersThanTheMean) {
  for (const char* optimizer : {"fedavgm", "fedadam", "signsgd:lr=0.001"}) {
    SCOPED_TRACE(optimizer);
    round::Plan wanted = plan();
    wanted.optimizer = round::parse_server_optimizer(optimizer).value();
    PassFederation federation(wanted, schema_, sites_);
    Audit audit(wanted, kPassSeed, 1, sites_, kBenchWeightMax, schema_);
    std::vector<float> model = model_;
    for (std::uint64_t round = 1; round <= 3; ++round) {
      const std::vector<float> base = model;
      const json::object committed = federation.round(round, model);
      const Status status = audit.check_round(committed, base, model);
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
  }
}

TEST_F(PassesAuditTest, AMeanOfAnotherAttemptIsFound) {
  expect_wrong("the mean of pass 1", [](json::object& round, std::vector<float>&) { round["attempt"] = 2; });
}

TEST_F(PassesAuditTest, AContributionToAMeanThatIsForgottenIsFound) {
  expect_wrong("the mean of pass 1", [](json::object& round, std::vector<float>&) {
    round["contributors"].as_array().pop_back();
    round["passes"].at(0).at("contributors").as_array().pop_back();
  });
}

TEST_F(PassesAuditTest, WhoIsCountedWithoutTheFirstPassIsFound) {
  expect_right(1);
  const Status status = follow(2, {.missing = {{2}, {}}}, [this](json::object& round, std::vector<float>&) {
    round["contributors"].as_array().push_back(json::object{{"site", sites_[2].node}, {"weight", 1}, {"digest", ""}});
  });
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("site 3 is counted, and was not in the pass before"));
}

TEST_F(PassesAuditTest, AStateThatIsNotSettledIsFound) {
  expect_wrong("codec's state", [this](json::object& round, std::vector<float>&) {
    federation_.state().data()[40] ^= std::byte{1};
    round["codec_state"] =
        json::object{{"sha256", to_hex(sha256(federation_.state().span()))}, {"bytes", federation_.state().size()}};
  });
}

TEST_F(PassesAuditTest, AStateThatGoesOnWithOtherBitsIsFound) {
  expect_right(1);
  federation_.state().data()[40] ^= std::byte{1};
  const Status status = follow(2);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("site 1 sent"));
}

TEST_F(PassesAuditTest, AResidualThatWasLostIsFound) {
  expect_right(1);
  federation_.residual(1).assign(kPassParams, 0.0F);
  const Status status = follow(2);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("site 2"));
}

TEST_F(PassesAuditTest, OneBitInOneCoordinateIsFound) {
  expect_wrong("coordinate 4321",
               [](json::object&, std::vector<float>& model) { model[4'321] = std::nextafter(model[4'321], 1.0F); });
}

TEST_F(PassesAuditTest, ARunThatContinuesAnotherBeginsWithItsFactors) {
  expect_right(1);
  expect_right(2);
  round::Plan next = plan();
  next.seed = 6;
  next.chunk_values = 1'000;
  PassFederation federation(next, schema_, sites_);
  // settle() of the old factors into a state of the new run, as whoever starts it does.
  const auto codec = kernels::make_codec(kernels::parse_codec(next.codec).value()).value();
  const aggregate::Shapes shapes(schema_, next.chunk_values);
  std::vector<float> factors(codec->pass_layout(shapes.schema(), 1).value_count);
  const ByteSpan kept = federation_.state().span().subspan(32);
  std::memcpy(factors.data(), kept.data(), kept.size());
  ASSERT_TRUE(codec->settle(shapes.schema(), {.run = next.seed}, factors, federation.state().span()).ok());
  for (std::size_t site = 0; site < sites_.size(); ++site) federation.residual(site) = federation_.residual(site);
  audit_.continue_as(next, 2);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    const std::vector<float> base = model_;
    const json::object committed = federation.round(round, model_);
    const Status status = audit_.check_round(committed, base, model_);
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
}

}  // namespace
}  // namespace fluvial::cli
