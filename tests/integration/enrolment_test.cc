// Who must not come in, over the real ports: one clear line on both sides, and nobody else is hurt.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/identity/token.h"
#include "core/local/fd.h"
#include "core/tree/enrol_client.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::object;
using cli::json::value;
using ::testing::HasSubstr;

class EnrolmentTest : public FederationTest {
 protected:
  std::string new_token(const std::string& name, std::uint64_t ttl_s = 600, const cli::LocalFederation* at = nullptr) {
    const auto& admin = (at == nullptr ? *federation_ : *at).admin();
    const auto token = admin.post("/v1/tokens", object{{"role", "site"}, {"name", name}, {"ttl_s", ttl_s}});
    EXPECT_TRUE(token.ok()) << token.error().message;
    return token.ok() ? cli::text_member(*token, "token") : "";
  }
  CommandRun enroll(const std::string& token, const std::string& folder, std::vector<std::string> more = {}) {
    const std::string file = folder_.file("token.txt");
    std::ofstream(file) << token << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::vector<std::string> arguments = {"enroll", "--token-file", file, "--data-dir", folder_.file(folder)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_fluvial(*supervisor_, folder_, arguments);
  }
  std::uint16_t port(const char* key) {
    return static_cast<std::uint16_t>(cli::count_member(federation_->admin().get("/v1/status").value(), key));
  }
  static void expect_one_line(const CommandRun& ran, const std::string& mention) {
    EXPECT_NE(ran.exit_status, 0);
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
    EXPECT_THAT(ran.output, ::testing::StartsWith("fluvial "));
    EXPECT_THAT(ran.output, HasSubstr(mention));
  }
  // The coordinator writes its line when its side of the connection ends.
  void expect_logged(const std::string& text) {
    const auto logged = cli::retry(std::chrono::seconds(30), [&]() -> Result<bool> {
      return log_of("coordinator").find(text) != std::string::npos;
    });
    EXPECT_TRUE(logged.ok() && *logged) << text << " is not in\n" << log_of("coordinator");
  }
};

// Sends raw bytes and reads until the other side closes.
void send_raw(std::uint16_t port, const std::string& bytes) {
  const local::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  ::shutdown(socket.get(), SHUT_WR);
  char answer[256];
  while (::recv(socket.get(), answer, sizeof answer, 0) > 0) {
  }
}

TEST_F(EnrolmentTest, TokensThatMustNotServe) {
  start(0, 0);
  const std::string pin = cli::text_member(federation_->admin().get("/v1/status").value(), "pin");
  const std::string address = fmt::format("127.0.0.1:{}", port("enrol_port"));

  const std::string token = new_token("hospital-a");
  const CommandRun first = enroll(token, "a");
  ASSERT_EQ(first.exit_status, 0) << first.output;
  const CommandRun twice = enroll(token, "a");
  EXPECT_EQ(twice.exit_status, 0) << twice.output;
  EXPECT_THAT(twice.output, HasSubstr("enrolled already as site"));
  expect_one_line(enroll(token, "b"), "was used at");
  expect_logged("was used at");

  const SystemClock clock;
  const auto made =
      identity::make_token({Role::kSite, "stranger", "", 1, clock.wall_now() + std::chrono::hours(1), address}, pin);
  expect_one_line(enroll(made->token.to_text(), "c"), "token");
  expect_logged("enrolment refused");

  const std::string short_lived = new_token("hospital-b", 1);
  const WallTime expired = clock.wall_now() + std::chrono::milliseconds(1'100);
  ASSERT_TRUE(cli::retry(std::chrono::seconds(10), [&]() -> Result<bool> { return clock.wall_now() > expired; }).ok());
  expect_one_line(enroll(short_lived, "d"), "expired at");
  expect_logged("expired at");

  std::string damaged = new_token("hospital-c");
  damaged[damaged.size() / 2] = damaged[damaged.size() / 2] == 'A' ? 'B' : 'A';
  const CommandRun typo = enroll(damaged, "e");
  expect_one_line(typo, "damaged");
  EXPECT_EQ(typo.exit_status, 2);
}

// More than an address may have answered, and as many as all once had together.
TEST_F(EnrolmentTest, WrongTokensAreChargedToNobodyWhoseTokenIsRight) {
  cli::FederationShape shape{.sites = 0, .aggregators = 0};
  shape.arguments["coordinator"] = {"--wrong-tokens-per-minute-max", "1"};
  start(std::move(shape));
  const std::string pin = cli::text_member(federation_->admin().get("/v1/status").value(), "pin");
  const std::string address = fmt::format("127.0.0.1:{}", port("enrol_port"));
  const auto key = identity::PrivateKey::generate();
  ASSERT_TRUE(key.ok());
  std::size_t wrong = 0;
  std::size_t too_many = 0;
  for (int i = 0; i < 63; ++i) {
    const WallTime expires = SystemClock().wall_now() + std::chrono::hours(1);
    const auto made = identity::make_token({Role::kSite, "stranger", "", 1, expires, address}, pin);
    const auto refused = tree::enrol_blocking(made->token, *key, {});
    ASSERT_FALSE(refused.ok());
    wrong += refused.error().message.find("wrong token:") != std::string::npos ? 1 : 0;
    too_many += refused.error().message.find("too many wrong tokens") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(wrong, 1u);
  EXPECT_GE(too_many, 1u);
  EXPECT_EQ(wrong + too_many, 63u);
  EXPECT_EQ(enroll(new_token("hospital-a"), "a").exit_status, 0);
}

TEST_F(EnrolmentTest, AnotherFederationsTokenMeetsTheWrongPin) {
  start(0, 0);
  const auto folder = std::move(cli::WorkFolder::open("", false, "test")).value();
  cli::LocalFederation other(*supervisor_, FLUVIAL_EXECUTABLE, folder.path(),
                             {.sites = 0, .aggregators = 0, .may_fail = true});
  ASSERT_TRUE(other.start().ok());
  const std::string token = new_token("hospital-a", 600, &other);
  const std::string here = fmt::format("127.0.0.1:{}", port("enrol_port"));
  expect_one_line(enroll(token, "a", {"--coordinator", here}), "wrong authority");
  expect_logged("refused");
  EXPECT_EQ(enroll(token, "a").exit_status, 0) << "the token is not used up";
  supervisor_->stop();
}

TEST_F(EnrolmentTest, ASitesCertificateIsNoAggregators) {
  start(0, 0);
  ASSERT_EQ(enroll(new_token("hospital-a"), "a").exit_status, 0);
  const CommandRun ran = run_fluvial(
      *supervisor_, folder_,
      {"aggregator", "--data-dir", folder_.file("a"), "--coordinator", fmt::format("127.0.0.1:{}", port("member_port")),
       "--advertise", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"});
  expect_one_line(ran, "may not act as aggregator");
}

TEST_F(EnrolmentTest, WhatIsNoTlsIsRefusedAndHurtsNobody) {
  start(2, 1);
  add_workers();
  for (const char* key : {"member_port", "enrol_port"}) {
    send_raw(port(key), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    std::string noise(4096, '\0');
    std::uint32_t word = 1;
    for (char& c : noise) c = static_cast<char>((word = word * 1'664'525U + 1'013'904'223U) >> 24);
    send_raw(port(key), noise);
  }
  expect_logged("plain_http");
  expect_logged("not_tls");
  const std::uint64_t run = start_run(plan(2), 1'000);
  wait_state(run, "done");
}

}  // namespace
}  // namespace fluvial::integration
