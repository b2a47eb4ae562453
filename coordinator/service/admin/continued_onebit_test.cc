// Runs that go on behind another one's warm-up: codec and optimizer onebit_adam with freeze=0.
#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <span>

#include "coordinator/service/admin/test_api.h"
#include "core/digest/sha256.h"
#include "core/store/plan_json.h"
#include "kernels/codec.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr std::size_t kValues = 1200;

// Run 1 is over: its warm-up of one round, or more than it has had.
class ContinuedOnebitTest : public ApiTest {
 protected:
  ContinuedOnebitTest() : ApiTest({add_runs}) {
    row_.schema = *round::Schema::make({{"w", round::DType::kF32, {30, 40}}});
    row_.initial_model = digest_;
  }
  static round::Plan plan(const std::string& options) {
    round::Plan plan;
    plan.name = "one bit";
    plan.codec = "onebit_adam:" + options;
    plan.optimizer = round::ServerOptimizer::of(round::Optimizer::kOnebitAdam);
    return plan;
  }
  ByteSpan bytes() const { return std::as_bytes(std::span(values_)); }
  void has_run(const std::string& options, bool hands_down) {
    row_.plan = plan(options);
    row_.id = journal_->create_run(row_).value();
    ASSERT_TRUE(models_->put({row_.id, ModelVersion(0)}, row_.schema, bytes(), digest_, {}).ok());
    ASSERT_TRUE(journal_->open_attempt({row_.id, RoundId(1), AttemptId(1), Epoch(1), {}, 30, {}}).ok());
    const auto sign = kernels::make_codec(kernels::parse_codec("sign").value()).value();
    left_ = Buffer((sign->encoded_bytes_max(kValues) + 3) / 4 * 4);
    std::ranges::fill(left_.span(), std::byte{0});
    const kernels::ChunkLayout layout{kValues, kValues};
    const auto encoding = sign->prepare({layout, {}}, values_, {}, {}, {}, {}).value();
    ASSERT_TRUE(sign->encode_chunk(encoding, 0, values_, left_.span()).ok());
    const ByteSpan state = hands_down ? ByteSpan(left_.span()) : ByteSpan();
    const std::vector<float> moments(2 * kValues, 0.25F);
    store::CommitRow row;
    row.record.run = row_.id;
    row.record.round = RoundId(1);
    row.record.attempt = AttemptId(1);
    row.record.model.digest = row.master = digest_;
    if (hands_down) row.record.codec_state = round::VectorRef{sha256(left_.span()), left_.size()};
    row.optimizer = models_->put({row_.id, ModelVersion(1)}, row_.schema, bytes(), digest_, moments, state).value();
    ASSERT_TRUE(journal_->commit(row).ok());
    ASSERT_TRUE(journal_->set_run_status(row_.id, store::RunStatus::kStopped, "").ok());
    begin();
  }
  net::HttpResponse start(const round::Plan& plan, bool keeps, std::uint64_t continues = 1) {
    json::object run{{"plan", json::parse(store::plan_to_json(plan))}, {"keep_optimizer", keeps}};
    run["continue"] = continues;
    if (continues == 0) run["model"] = models_->path_of({row_.id, ModelVersion(0)});
    return ask("POST", "/v1/runs", json::serialize(run));
  }

  const std::vector<float> values_ = std::vector<float>(kValues, 1.0F);
  const Digest digest_ = store::model_digest(std::as_bytes(std::span(values_)));
  store::RunRow row_;
  Buffer left_;
};

TEST_F(ContinuedOnebitTest, WithoutAWarmUpOfItsOwnItGoesOnWithTheMomentum) {
  has_run("freeze=1", true);
  const net::HttpResponse started = start(plan("freeze=0,beta1=0.8,zstd=1"), true);
  ASSERT_EQ(started.status, 200) << started.body;
  const round::VectorRef left{sha256(left_.span()), left_.size()};
  const auto* active = root_->runs().active();
  ASSERT_TRUE(active->machine.pass().has_value());
  EXPECT_EQ(active->machine.pass()->count, 1U);
  EXPECT_EQ(active->machine.pass()->state, left) << "the first round begins with what the last one handed down";
  EXPECT_EQ(*active->optimizer_state, std::vector<float>(2 * kValues, 0.25F));
  EXPECT_EQ(journal_->run(RunId(2))->codec_state, left);
}

TEST_F(ContinuedOnebitTest, WithAWarmUpOfItsOwnItBeginsAsEver) {
  has_run("freeze=1", true);
  const net::HttpResponse started = start(plan("freeze=10"), false);
  ASSERT_EQ(started.status, 200) << started.body;
  EXPECT_EQ(root_->runs().active()->machine.pass()->state, std::nullopt);
  EXPECT_TRUE(root_->runs().active()->optimizer_state->empty());
}

// A variance that stays as it is has to come from somewhere.
TEST_F(ContinuedOnebitTest, WithoutAWarmUpAtAllItIsRefused) {
  has_run("freeze=1", true);
  const net::HttpResponse alone = start(plan("freeze=0"), false, 0);
  EXPECT_EQ(alone.status, 400);
  EXPECT_THAT(alone.body, HasSubstr("has no warm-up: expected to continue a run whose own is over"));
  EXPECT_EQ(start(plan("freeze=0"), false).status, 400) << "without the variance";
  EXPECT_THAT(start(plan("freeze=0,block=512"), true).body, HasSubstr("and the same block and chunk_values"));
  round::Plan cut = plan("freeze=0");
  cut.chunk_values = 512;
  EXPECT_THAT(start(cut, true).body, HasSubstr("and the same block and chunk_values"));
  EXPECT_THAT(start(plan("freeze=10"), true).body, HasSubstr("goes on behind a warm-up that is over"));
}

TEST_F(ContinuedOnebitTest, BehindAWarmUpThatIsNotOverItIsRefused) {
  has_run("freeze=8", false);
  const net::HttpResponse refused = start(plan("freeze=0"), true);
  EXPECT_NE(refused.status, 200);
  EXPECT_THAT(refused.body, HasSubstr("goes on behind a warm-up that is over"));
}

}  // namespace
}  // namespace fluvial::coordinator::admin
