// What a run begins with that continues another one whose codec keeps a state alike at all sites.
#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <future>
#include <span>

#include "coordinator/model/passes.h"
#include "coordinator/service/admin/test_api.h"
#include "core/digest/sha256.h"
#include "core/store/plan_json.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

// Run 1 is over, after one round of two passes; or it is not, and nothing is taken up yet.
class ContinuedRunsTest : public ApiTest {
 protected:
  explicit ContinuedRunsTest(bool begins = true) : ApiTest({add_runs}) {
    row_.plan = plan("powersgd:rank=2");
    row_.schema = *round::Schema::make({{"w", round::DType::kF32, {30, 40}}});
    row_.initial_model = digest_;
    row_.id = journal_->create_run(row_).value();
    EXPECT_TRUE(models_->put({row_.id, ModelVersion(0)}, row_.schema, bytes(), digest_, {}).ok());
    commit();
    if (!begins) return;
    EXPECT_TRUE(journal_->set_run_status(row_.id, store::RunStatus::kStopped, "").ok());
    begin();
  }

  static round::Plan plan(const std::string& codec) {
    round::Plan plan;
    plan.name = "thin";
    plan.codec = codec;
    plan.seed = 4;
    return plan;
  }
  ByteSpan bytes() const { return std::as_bytes(std::span(values_)); }
  void commit(std::uint64_t round = 1) {
    const auto codec = kernels::make_codec(kernels::parse_codec(row_.plan.codec).value()).value();
    const aggregate::Shapes shapes(row_.schema, row_.plan.chunk_values);
    left_ = Buffer(codec->state_bytes(shapes.schema()));
    std::ranges::fill(left_.span(), std::byte{0});
    const std::vector<float> q(codec->pass_layout(shapes.schema(), 1).value_count, 0.5F);
    ASSERT_TRUE(codec->settle(shapes.schema(), {.run = row_.plan.seed, .round = 1}, q, left_.span()).ok());
    ASSERT_TRUE(journal_->open_attempt({row_.id, RoundId(round), AttemptId(1), Epoch(1), {}, 30, {}}).ok());
    store::CommitRow row;
    row.record.run = row_.id;
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    row.record.model.digest = row.master = digest_;
    row.record.codec_state = round::VectorRef{sha256(left_.span()), left_.size()};
    row.optimizer =
        models_->put({row_.id, ModelVersion(round)}, row_.schema, bytes(), digest_, {}, left_.span()).value();
    ASSERT_TRUE(journal_->commit(row).ok());
  }
  json::object start(const round::Plan& plan, RunId continues, const std::string& model = "") {
    return start(plan, {{"model", model}, {"continue", continues.value()}});
  }
  json::object start(const round::Plan& plan, json::object run) {
    run["plan"] = json::parse(store::plan_to_json(plan));
    const net::HttpResponse response = ask("POST", "/v1/runs", json::serialize(run));
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body).as_object();
  }
  std::optional<round::VectorRef> begun_with() { return root_->runs().active()->machine.pass()->state; }

  const std::vector<float> values_ = std::vector<float>(30 * 40, 1.0F);
  const Digest digest_ = store::model_digest(std::as_bytes(std::span(values_)));
  store::RunRow row_;
  Buffer left_;
};

TEST_F(ContinuedRunsTest, TheSameCodecBeginsWithTheLastRunsState) {
  round::Plan next = plan("powersgd:rank=2");
  next.seed = 5;
  start(next, row_.id);
  const auto codec = kernels::make_codec(kernels::parse_codec(next.codec).value()).value();
  const NamedVector expected = continued_state(*codec, row_.schema, next, left_.span()).value();
  EXPECT_EQ(begun_with(), expected.ref);
  EXPECT_EQ(journal_->run(RunId(2))->codec_state, expected.ref);
  EXPECT_FALSE(journal_->run(RunId(2))->keeps_optimizer);

  // And a third from that one, before any round of it is committed.
  ASSERT_TRUE(test_.run(root_->runs().stop_run(RunId(2), "by hand")).ok());
  start(next, RunId(2));
  EXPECT_EQ(begun_with(), expected.ref) << "the same seed, so the same state";
}

TEST_F(ContinuedRunsTest, AnotherRankBeginsAsEver) {
  start(plan("powersgd:rank=1"), row_.id);
  EXPECT_EQ(begun_with(), std::nullopt);
}

TEST_F(ContinuedRunsTest, AnotherCodecHasNone) {
  start(plan("int8"), row_.id);
  EXPECT_EQ(journal_->run(RunId(2))->codec_state, std::nullopt);
  EXPECT_FALSE(root_->runs().active()->machine.pass().has_value());
}

// The start waits until the journal's runs are taken up; the last round of the run before is committed meanwhile.
class StartedBeforeTakeUp : public ContinuedRunsTest {
 protected:
  StartedBeforeTakeUp() : ContinuedRunsTest(false) {}
};

TEST_F(StartedBeforeTakeUp, ARunBeginsWithTheLastRoundThatIsThereWhenItBegins) {
  std::future<json::object> answer =
      std::async(std::launch::async, [this] { return start(plan("int8"), {{"continue", 1}}); });
  for (int i = 0; i < 100; ++i) {  // whatever the start did at once is done
    ASSERT_TRUE(test_.run(runtime_.pool.run([] { return Status{}; })).ok());
  }
  commit(2);
  ASSERT_TRUE(journal_->set_run_status(row_.id, store::RunStatus::kDone, "").ok());
  begin();
  EXPECT_EQ(answer.get().at("round"), 2);
}

TEST_F(ContinuedRunsTest, TheStateIsThatOfTheRoundThatTheRunGoesBackTo) {
  const round::Plan next = plan("powersgd:rank=2");
  EXPECT_EQ(start(next, {{"continue", 1}, {"round", 0}}).at("round"), 0);
  EXPECT_EQ(begun_with(), std::nullopt) << "before the first round there is none";
  ASSERT_TRUE(test_.run(root_->runs().stop_run(RunId(2), "by hand")).ok());
  EXPECT_EQ(start(next, {{"continue", 1}, {"round", "1"}}).at("round"), 1);
  EXPECT_NE(begun_with(), std::nullopt);
}

// An evaluation's, say: what sites hold back for the run of the model stays theirs.
TEST_F(ContinuedRunsTest, ARunMayBeginWithTheModelOfAnotherAndNotContinueIt) {
  EXPECT_EQ(start(plan("powersgd:rank=2"), {{"model_of", 1}}).at("round"), 1) << "the last one";
  EXPECT_EQ(begun_with(), std::nullopt);
  const store::RunRow row = journal_->run(RunId(2)).value();
  EXPECT_EQ(row.continues, RunId(0));
  EXPECT_EQ(row.initial_model, digest_);
}

TEST_F(ContinuedRunsTest, WithAModelOfItsOwnARunBeginsAsEver) {
  start(plan("powersgd:rank=2"), row_.id, models_->path_of({row_.id, ModelVersion(0)}));
  EXPECT_EQ(begun_with(), std::nullopt);
}

}  // namespace
}  // namespace fluvial::coordinator::admin
