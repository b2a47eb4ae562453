// What commands print of the coordinator's answers.
#include <gmock/gmock.h>

#include <vector>

#include "cli/command_test_support.h"
#include "cli/page_server.h"
#include "core/base/testing.h"

namespace fluvial::cli {
namespace {

using ::testing::HasSubstr;

class AdminCommands : public ::testing::Test {
 protected:
  Ran ask(Pages pages, std::vector<std::string> arguments) {
    const PageServer server(std::move(pages), net::UnixAddress{folder_ / "admin.sock"});
    arguments.insert(arguments.end(), {"--data-dir", folder_.path()});
    return run(arguments);
  }
  TemporaryFolder folder_;
};

TEST_F(AdminCommands, AModelIsTheBestByTheLeastOrTheGreatestValue) {
  const auto listed = [this](const std::string& kept_best) {
    const std::string models = R"([{"round":2,"labels":[],"best":0.5},{"round":3,"labels":["last"],"best":null}])";
    return ask({{"/v1/models/latest",
                 {200, R"({"run":1,"kept_best":")" + kept_best + R"(","models":)" + models + "}"}}},
               {"model", "list"})
        .out;
  };
  EXPECT_THAT(listed("accuracy:max"), HasSubstr("greatest accuracy 0.5"));
  EXPECT_THAT(listed("loss:min"), HasSubstr("least loss 0.5"));
  EXPECT_THAT(listed("accuracy"), HasSubstr("least accuracy 0.5")) << "of a run from before";
}

}  // namespace
}  // namespace fluvial::cli
