#include "cli/console_gate.h"

#include <gmock/gmock.h>

namespace fluvial::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKey(64, 'a');
const std::string kSession(64, 'b');

ConsoleAccess access() { return {.port = 4711, .key = kKey, .session = kSession}; }

net::HttpRequest get(const std::string& path) {
  net::HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.headers = {{"host", "127.0.0.1:4711"}, {"cookie", "fluvial-console-4711=" + kSession}};
  return request;
}

net::HttpRequest post(const std::string& path) {
  net::HttpRequest request = get(path);
  request.method = "POST";
  request.headers["origin"] = "http://127.0.0.1:4711";
  request.headers[kConsoleHeader] = "1";
  return request;
}

net::HttpRequest with(net::HttpRequest request, const std::string& header, const std::string& value) {
  request.headers[header] = value;
  return request;
}

net::HttpRequest with_key(const std::string& key) {
  net::HttpRequest request = get("/");
  request.headers.erase("cookie");
  request.query["key"] = key;
  return request;
}

bool forwards(const net::HttpRequest& request, const ConsoleAccess& to = access()) {
  return judge(to, request).step == ConsoleStep::kForward;
}

int refusal(const net::HttpRequest& request, const ConsoleAccess& to = access()) {
  const ConsoleVerdict verdict = judge(to, request);
  EXPECT_EQ(verdict.step, ConsoleStep::kRefuse) << request.path;
  EXPECT_FALSE(verdict.reason.empty());
  return verdict.status;
}

TEST(ConsoleGate, WhatThePageReadsGoesOn) {
  for (const char* path :
       {"/", "/console/main.js", "/console/style.css", "/v1/status", "/v1/nodes", "/v1/runs", "/v1/runs/3",
        "/v1/runs/latest", "/v1/rounds", "/v1/rounds/open", "/v1/rounds/17/timeline", "/v1/events"}) {
    EXPECT_TRUE(forwards(get(path))) << path;
  }
  EXPECT_TRUE(forwards(with(get("/v1/status"), "host", "localhost:4711")));
  EXPECT_EQ(judge(access(), get("/session")).step, ConsoleStep::kDescribe);
}

TEST(ConsoleGate, NothingElseOfTheAdminApiDoes) {
  for (const char* path : {"/v1/tokens",
                           "/v1/backup",
                           "/v1/rounds/watch",
                           "/v1/models/1/latest",
                           "/v1",
                           "/v1/",
                           "/v2/status",
                           "/status",
                           "/v1/status/",
                           "//v1/status",
                           "/v1/runs/x",
                           "/v1/runs/1/plan",
                           "/v1/rounds/1",
                           "/v1/rounds/x/timeline",
                           "/console/",
                           "/console/../v1/tokens",
                           "/console/.x",
                           "/console/a/b",
                           "/console/..",
                           "/v1/nodes/hospital-a"}) {
    EXPECT_EQ(refusal(get(path)), 403) << path;
  }
}

TEST(ConsoleGate, AnotherHostIsRefusedWhateverElseItShows) {
  for (const char* host : {"", "127.0.0.1", "127.0.0.1:4712", "evil.example:4711", "localhost:4711.evil.example",
                           "127.0.0.1:4711, evil.example", "0.0.0.0:4711", "[::1]:4711", "LOCALHOST:4711 "}) {
    EXPECT_EQ(refusal(with(get("/v1/status"), "host", host)), 421) << host;
    EXPECT_EQ(refusal(with(with_key(kKey), "host", host)), 421) << host;
  }
}

TEST(ConsoleGate, AnotherOriginIsRefused) {
  for (const char* origin : {"null", "http://evil.example", "http://127.0.0.1:4712", "https://127.0.0.1:4711",
                             "http://127.0.0.1", "http://localhost:4711"}) {
    EXPECT_EQ(refusal(with(get("/v1/status"), "origin", origin)), 403) << origin;
    EXPECT_EQ(refusal(with(post("/v1/runs/1/stop"), "origin", origin)), 403) << origin;
    EXPECT_EQ(refusal(with(with_key(kKey), "origin", origin)), 403) << origin;
  }
  EXPECT_TRUE(forwards(with(get("/v1/status"), "origin", "http://127.0.0.1:4711")));
}

TEST(ConsoleGate, WhoHasNoCookieIsRefusedAndToldWhatToDo) {
  const std::string name = "fluvial-console-4711=";
  for (const std::string& cookie :
       {std::string(), name, name + std::string(64, 'c'), name + kSession + "x", name + kSession.substr(1), name + kKey,
        "fluvial-console-4712=" + kSession, "x" + name + kSession, name + "x; " + name + kSession}) {
    for (const char* path : {"/", "/console/main.js", "/v1/status", "/session"}) {
      EXPECT_EQ(refusal(with(get(path), "cookie", cookie)), 401) << cookie;
    }
    EXPECT_EQ(refusal(with(post("/v1/runs/1/stop"), "cookie", cookie)), 401) << cookie;
  }
  EXPECT_THAT(judge(access(), with(get("/"), "cookie", "")).reason, HasSubstr("start it again"));
  EXPECT_TRUE(forwards(with(get("/"), "cookie", "other=1; fluvial-console-4711=" + kSession + "; more=2")));
}

TEST(ConsoleGate, ASessionOfNothingIsNoneOfOurs) {
  ConsoleAccess none = access();
  none.session.clear();
  EXPECT_EQ(refusal(with(get("/"), "cookie", "fluvial-console-4711="), none), 401);
}

TEST(ConsoleGate, TheKeyLetsInOnce) {
  EXPECT_EQ(judge(access(), with_key(kKey)).step, ConsoleStep::kEnter);
  EXPECT_EQ(refusal(with_key("")), 403);
  EXPECT_EQ(refusal(with_key(std::string(64, 'c'))), 403);
  EXPECT_EQ(refusal(with_key(kKey.substr(1))), 403);
  ConsoleAccess used = access();
  used.key.clear();
  EXPECT_EQ(refusal(with_key(kKey), used), 403);
  EXPECT_EQ(refusal(with_key(""), used), 403);
  EXPECT_THAT(judge(used, with_key(kKey)).reason, HasSubstr("start it again"));
  net::HttpRequest elsewhere = with_key(kKey);
  elsewhere.path = "/v1/status";
  EXPECT_EQ(refusal(elsewhere), 401) << "the key is for the page alone";
  net::HttpRequest posted = with_key(kKey);
  posted.method = "POST";
  EXPECT_EQ(refusal(posted), 405);
}

TEST(ConsoleGate, ARunIsPausedResumedAndStopped) {
  for (const char* path : {"/v1/runs/1/pause", "/v1/runs/12/resume", "/v1/runs/3/stop"}) {
    EXPECT_TRUE(forwards(post(path))) << path;
  }
  for (const char* path : {"/v1/runs", "/v1/runs/latest/stop", "/v1/runs/1/start", "/v1/runs/1", "/v1/tokens",
                           "/v1/nodes/hospital-a/revoke", "/v1/backup", "/v1/runs/1/stop/", "/v1/runs/1x/stop"}) {
    EXPECT_EQ(refusal(post(path)), 403) << path;
  }
}

TEST(ConsoleGate, WithoutOurHeaderNothingIsChanged) {
  net::HttpRequest bare = post("/v1/runs/1/stop");
  bare.headers.erase(kConsoleHeader);
  EXPECT_EQ(refusal(bare), 403);
  EXPECT_EQ(refusal(with(post("/v1/runs/1/stop"), kConsoleHeader, "yes")), 403);
}

TEST(ConsoleGate, ReadOnlyChangesNothing) {
  ConsoleAccess read_only = access();
  read_only.read_only = true;
  EXPECT_EQ(refusal(post("/v1/runs/1/pause"), read_only), 403);
  EXPECT_TRUE(forwards(get("/v1/status"), read_only));
}

TEST(ConsoleGate, OtherMethodsAndOtherSitesAreRefused) {
  for (const char* method : {"HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "get"}) {
    net::HttpRequest request = get("/v1/status");
    request.method = method;
    EXPECT_EQ(refusal(request), 405) << method;
  }
  for (const char* from : {"cross-site", "same-site"}) {
    EXPECT_EQ(refusal(with(get("/v1/status"), "sec-fetch-site", from)), 403) << from;
    EXPECT_EQ(judge(access(), with(with_key(kKey), "sec-fetch-site", from)).step, ConsoleStep::kEnter)
        << "the address may stand on any page";
  }
  EXPECT_TRUE(forwards(with(get("/v1/status"), "sec-fetch-site", "same-origin")));
  EXPECT_TRUE(forwards(with(get("/"), "sec-fetch-site", "none")));
}

TEST(ConsoleGate, GivesTheCookieOnceAndUsesTheKeyUp) {
  ConsoleGate gate(access());
  const auto entered = gate(with_key(kKey));
  ASSERT_TRUE(entered);
  EXPECT_EQ(entered->status, 200);
  EXPECT_THAT(entered->body, Not(HasSubstr(kKey)));
  std::string cookie;
  for (const auto& [name, value] : entered->headers) {
    if (name == "Set-Cookie") cookie = value;
  }
  EXPECT_EQ(cookie, "fluvial-console-4711=" + kSession + "; HttpOnly; SameSite=Strict; Path=/");
  const auto again = gate(with_key(kKey));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->status, 403);
  EXPECT_THAT(again->body, HasSubstr("has been used"));
  EXPECT_FALSE(gate(get("/v1/status"))) << "it goes on to the coordinator";
  EXPECT_EQ(gate(get("/session"))->body, "{\"read_only\":false}");
}

}  // namespace
}  // namespace fluvial::cli
