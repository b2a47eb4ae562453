#include <gmock/gmock.h>

#include <boost/json.hpp>

#include "coordinator/service/admin/test_api.h"
#include "core/store/plan_json.h"

namespace fluvial::coordinator::admin {
namespace {

using testing::HasSubstr;

class PlansTest : public ApiTest {
 protected:
  PlansTest() : ApiTest({add_plans}) { begin(); }

  boost::json::object check(const std::string& toml, const std::string& file = "digits.toml", unsigned status = 200) {
    const net::HttpResponse response =
        ask("POST", "/v1/plans/check", boost::json::serialize(boost::json::object{{"toml", toml}, {"file", file}}));
    EXPECT_EQ(response.status, status) << response.body;
    return boost::json::parse(response.body).as_object();
  }
  std::string refusal(const std::string& toml, const std::string& file = "digits.toml") {
    return std::string(check(toml, file, 400).at("message").as_string());
  }
};

TEST_F(PlansTest, APlanFileBecomesThePlanOfARun) {
  const boost::json::object checked = check(
      "name = 'digits'\nmodel = 'initial.safetensors'\ncodec = 'dgc'\n[deadlines]\nhard_ms = '10m'\n[optimizer]\n"
      "name = 'fedavgm'\nmomentum = 0.5\n[worker]\nlr = { start = 0.1, decay = 0.5 }\n");
  const round::Plan plan = store::plan_from_json(boost::json::serialize(checked.at("plan"))).value();
  EXPECT_EQ(plan.name, "digits");
  EXPECT_EQ(plan.hard_deadline, std::chrono::minutes(10));
  EXPECT_EQ(plan.optimizer.momentum, 0.5);
  EXPECT_EQ(plan.worker.schedules.at("lr").decay, 0.5);
  EXPECT_EQ(checked.at("model").as_string(), "initial.safetensors");
  ASSERT_EQ(checked.at("notes").as_array().size(), 1U) << "momentum twice";
  EXPECT_THAT(std::string(checked.at("notes").at(0).as_string()), HasSubstr("dgc"));
}

TEST_F(PlansTest, WhatDependsOnWhoIsEnrolledIsLeftOutUnlessItIsNamed) {
  EXPECT_FALSE(check("name = 'a'").at("plan").as_object().contains("participants.min"));
  EXPECT_EQ(check("name = 'a'\nparticipants.min = 3").at("plan").at("participants.min").to_number<int>(), 3);
}

TEST_F(PlansTest, ErrorsNameTheFileTheLineAndTheKey) {
  EXPECT_EQ(refusal("name = 'a'\ncodecc = 'int8'"), "digits.toml:2: unknown key 'codecc': did you mean 'codec'?");
  EXPECT_EQ(refusal("codec = 'int8'"), "digits.toml: name is missing");
  EXPECT_THAT(refusal("name = 'a'\ncodec = 'int7'"), HasSubstr("digits.toml:2: codec = 'int7': "));
  EXPECT_THAT(refusal("name = 'a'\nmode = 'async'\nasync.goal = 3\nparticipants.quorum = 5"),
              HasSubstr("expected at most async.goal"));
  EXPECT_THAT(refusal("name = "), HasSubstr("digits.toml:1: not TOML"));
  for (const char* file : {"", "../digits.toml", "a\nb"}) EXPECT_THAT(refusal("name = 'a'", file), HasSubstr("file: "));
}

}  // namespace
}  // namespace fluvial::coordinator::admin
