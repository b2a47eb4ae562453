// What is said of a run at the moment of its end.
#include <boost/json.hpp>

#include "coordinator/service/admin/test_api.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

class RunEndsTest : public ApiTest {
 protected:
  RunEndsTest() : ApiTest({add_runs}) {
    const std::vector<float> values(100);
    store::RunRow row;
    row.plan.name = "digits";
    row.schema = *round::Schema::make({{"w", round::DType::kF32, {100}}});
    row.initial_model = store::model_digest(std::as_bytes(std::span(values)));
    row.id = run_ = journal_->create_run(row).value();
    EXPECT_TRUE(
        models_->put({run_, ModelVersion(0)}, row.schema, std::as_bytes(std::span(values)), row.initial_model, {})
            .ok());
    begin();
  }
  std::string shown() { return json::parse(ask("GET", "/v1/runs/1").body).at("status").as_string().c_str(); }
  std::string listed() {
    return json::parse(ask("GET", "/v1/runs").body).at("runs").at(0).at("status").as_string().c_str();
  }

  RunId run_;
};

// Who waits for the end starts the next run then.
TEST_F(RunEndsTest, ARunIsNotOverBeforeTheNextOneCanBeStarted) {
  ASSERT_NE(root_->runs().active_run(), std::nullopt);
  EXPECT_EQ(shown(), "running");
  ASSERT_TRUE(journal_->set_run_status(run_, store::RunStatus::kDone, "").ok());  // and the machine has not heard of it
  EXPECT_EQ(shown(), "running");
  EXPECT_EQ(listed(), "running");
}

}  // namespace
}  // namespace fluvial::coordinator::admin
