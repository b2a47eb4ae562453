// What a command answers when a person has made a slip, and what it keeps them from.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class AnswersTest : public FederationTest {
 protected:
  CommandRun fluvial(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--admin-socket", federation_->admin().place()});
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  }
  // A plan as a person writes it, and the model of a run before.
  std::string write_plan(const std::string& lines) {
    const std::string path = folder_.file("mine.toml");
    EXPECT_TRUE(cli::write_text_file(path, "name = \"mine\"\nrounds = 2\n" + lines).ok());
    return path;
  }
};

TEST_F(AnswersTest, ASlipIsNamedWhereItStands) {
  start(2, 0);
  const CommandRun codec =
      fluvial({"run", "start", write_plan("codec = \"int9\"\n"), "--model", folder_.file("mine.toml")});
  EXPECT_EQ(codec.exit_status, 2);
  EXPECT_THAT(codec.output, AllOf(HasSubstr("mine.toml:3: codec = 'int9': "), HasSubstr("fp32"), HasSubstr("topk"),
                                  HasSubstr("powersgd")));
  const CommandRun model = fluvial({"run", "start", write_plan(""), "--model", folder_.file("mine.toml")});
  EXPECT_EQ(model.exit_status, 1);
  EXPECT_THAT(model.output, HasSubstr("mine.toml: not a safetensors file"));
  const CommandRun none = fluvial({"rounds", "list", "--run", "99"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.output, HasSubstr("99"));
}

TEST_F(AnswersTest, APlanThatMayLearnBadlyIsStartedWithANote) {
  start(2, 0);
  add_workers();
  const std::uint64_t run = start_run(plan(1), 1'000);
  wait_state(run, "done");
  const std::string out = folder_.file("out.safetensors");
  ASSERT_EQ(fluvial({"model", "export", out}).exit_status, 0);
  const std::string twice = write_plan("codec = \"dgc\"\n[optimizer]\nname = \"fedavgm\"\n");
  const CommandRun noted = fluvial({"run", "start", twice, "--model", out});
  EXPECT_EQ(noted.exit_status, 0) << noted.output;
  EXPECT_THAT(noted.output, AllOf(HasSubstr("note: codec dgc keeps a momentum at each site, and optimizer fedavgm"),
                                  HasSubstr("started")));
  wait_state(run + 1, "done");
  const CommandRun quiet = fluvial({"run", "start", write_plan("codec = \"dgc\"\n"), "--model", out, "--json"});
  EXPECT_EQ(quiet.exit_status, 0) << quiet.output;
  EXPECT_THAT(quiet.output, AllOf(HasSubstr("\"notes\": []"), Not(HasSubstr("note:"))));
  wait_state(run + 2, "done");
}

TEST_F(AnswersTest, APlanThatNamesNoMinimumWaitsForMoreThanOneSite) {
  start(2, 0);
  add_workers();
  const std::uint64_t run = start_run(plan(2), 1'000);
  wait_state(run, "done");
  const std::string out = folder_.file("out.safetensors");
  EXPECT_EQ(fluvial({"model", "export", out}).exit_status, 0);
  const CommandRun again = fluvial({"model", "export", out});
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.output, AllOf(HasSubstr(out), HasSubstr("--force")));
  EXPECT_EQ(fluvial({"model", "export", out, "--force"}).exit_status, 0);

  const CommandRun started =
      fluvial({"run", "start", write_plan("[worker]\nlearning_rate = 0.5\n"), "--model", out, "--json"});
  EXPECT_EQ(started.exit_status, 0) << started.output;
  const CommandRun shown = fluvial({"run", "show", "--json"});
  EXPECT_THAT(shown.output, AllOf(HasSubstr("\"participants.min\": 2"), HasSubstr("\"learning_rate\":0.5"),
                                  HasSubstr("\"optimizer.learning_rate\": 1.0"), Not(HasSubstr("momentum")),
                                  HasSubstr("\"value_abs_max\": 1024.0")));
  wait_state(2, "done");
}

TEST_F(AnswersTest, APortThatIsTakenIsNamedWithItsSetting) {
  start(1, 0);
  const auto status = federation_->admin().get("/v1/status");
  ASSERT_TRUE(status.ok()) << status.error().message;
  const std::string taken = fmt::format("127.0.0.1:{}", cli::count_member(*status, "member_port"));
  const std::string data = folder_.file("second");
  const CommandRun members = run_fluvial(
      *supervisor_, folder_, {"coordinator", "--data-dir", data, "--listen", taken, "--enrol-listen", "127.0.0.1:0"});
  EXPECT_NE(members.exit_status, 0);
  EXPECT_THAT(members.output,
              AllOf(HasSubstr("cannot listen on " + taken), HasSubstr("listen (--listen, FLUVIAL_LISTEN)")));
  const CommandRun enrolment = run_fluvial(
      *supervisor_, folder_, {"coordinator", "--data-dir", data, "--listen", "127.0.0.1:0", "--enrol-listen", taken});
  EXPECT_THAT(enrolment.output, HasSubstr("enrol_listen (--enrol-listen, FLUVIAL_ENROL_LISTEN)"));
}

}  // namespace
}  // namespace fluvial::integration
