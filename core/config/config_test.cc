#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "core/base/testing.h"
#include "core/config/plan_file.h"
#include "core/config/reader.h"
#include "core/round/plan_keys.h"

namespace fluvial::config {
namespace {

using Arguments = std::vector<std::string>;

Environment no_environment() {
  return [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
}
Environment environment(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

class ConfigFile : public testing::Test {
  const TemporaryFolder folder_;

 protected:
  void write(const std::string& text) { std::ofstream(path) << text; }
  // The whole message, with the folder left out.
  std::string refusal(const std::string& text, Arguments arguments = {}) {
    write(text);
    arguments.insert(arguments.end(), {"--config", path});
    const auto settings = read_settings<EdgeSettings>(arguments, no_environment());
    if (settings.ok()) return "(read)";
    EXPECT_EQ(settings.error().code, Code::kInvalidArgument);
    std::string message = settings.error().message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    if (const auto at = message.find(folder_.path()); at == 0) message.erase(0, folder_.path().size() + 1);
    return message;
  }
  const std::string path = folder_ / "edge.toml";
};

TEST(Parse, Sizes) {
  EXPECT_EQ(parse_bytes("4096").value(), 4096u);
  EXPECT_EQ(parse_bytes("18446744073709551615").value(), ~std::uint64_t{0});
  EXPECT_EQ(parse_bytes("256MiB").value(), 268435456u);
  EXPECT_EQ(parse_bytes("1.5 GiB").value(), 1610612736u);
  EXPECT_EQ(parse_bytes("64kB").value(), 64000u);
  EXPECT_EQ(parse_bytes(" 7 B ").value(), 7u);
  for (const char* bad : {"", "x", "-1", "1.3B", "12 parsecs", "MiB", "nan", "inf", "1e9MiB", "9999999999TiB", "1 2"}) {
    EXPECT_FALSE(parse_bytes(bad).ok()) << bad;
  }
}

TEST(Parse, Durations) {
  EXPECT_EQ(parse_milliseconds("250").value(), 250u);
  EXPECT_EQ(parse_milliseconds("30s").value(), 30000u);
  EXPECT_EQ(parse_milliseconds("1.5m").value(), 90000u);
  EXPECT_EQ(parse_milliseconds("0.1s").value(), 100u);
  EXPECT_EQ(parse_seconds("10m").value(), 600u);
  EXPECT_EQ(parse_seconds("2d").value(), 172800u);
  EXPECT_FALSE(parse_seconds("1500ms").ok());
  EXPECT_FALSE(parse_milliseconds("30 sec").ok());
}

TEST(Parse, Addresses) {
  EXPECT_EQ(parse_host_port("hub.example.org:7400").value(), (HostPort{"hub.example.org", 7400}));
  EXPECT_EQ(parse_host_port(":7401").value(), (HostPort{"0.0.0.0", 7401}));
  EXPECT_EQ(parse_host_port("[::1]:1").value(), (HostPort{"::1", 1}));
  EXPECT_EQ(format_host_port({"::1", 1}), "[::1]:1");
  for (const char* bad : {"", "host", "host:", "host:70000", "host:-1", "a b:1", "::1:1x", "[x]:1", "host:1 "}) {
    EXPECT_FALSE(parse_host_port(bad).ok()) << bad;
  }
}

TEST(Parse, Gpus) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(parse_gpus("cuda:0").value(), Names{"cuda:0"});
  EXPECT_EQ(parse_gpus(" cuda:1 ,cuda:12").value(), (Names{"cuda:1", "cuda:12"}));
  EXPECT_EQ(parse_gpus("cuda").value(), Names{"cuda"});
  for (const char* bad : {"", ",", "cuda:0,", "cuda:", "cuda:x", "cuda:0 1", ":0", "0", "cuda:0,cuda:0", "cuda:12345",
                          "CUDA:0", "gpu:0", "auto,cuda:0", "none,cuda:0"}) {
    EXPECT_FALSE(parse_gpus(bad).ok()) << bad;
  }
}

TEST(Closest, SuggestsWhatIsNear) {
  const std::vector<std::string> known = {"listen", "region", "data_dir"};
  EXPECT_EQ(closest("lisen", known), "listen");
  EXPECT_EQ(closest("data-dir", known), "data_dir");
  EXPECT_EQ(closest("completely", known), "");
}

TEST_F(ConfigFile, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  write("data_dir = \"/file\"\ncoordinator = \"file:1\"\nworkers = 2\n[session]\nframe_deadline_ms = \"2s\"\n");
  const auto variables =
      environment({{"FLUVIAL_COORDINATOR", "env:2"}, {"FLUVIAL_WORKERS", "3"}, {"FLUVIAL_CONFIG", path}});
  const auto settings = read_settings<EdgeSettings>({"--workers", "4"}, variables);
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_EQ(settings->data_dir, "/file");
  EXPECT_EQ(settings->coordinator, "env:2");
  EXPECT_EQ(settings->workers, 4u);
  EXPECT_EQ(settings->session.frame_deadline_ms, 2000u);
  EXPECT_EQ(settings->session.handshake_deadline_ms, 5000u);
  EXPECT_EQ(settings->worker_socket, "/file/worker.sock");
  EXPECT_TRUE(check_settings(*settings).ok());
}

TEST_F(ConfigFile, EveryRefusalIsOneLineWithFileKeyValueAndExpectation) {
  const std::string head = "data_dir = \"/d\"\ncoordinator = \"hub:7400\"\n";
  EXPECT_EQ(refusal(head), "(read)");
  EXPECT_EQ(refusal(head + "workers = 0"), "edge.toml:3: workers = '0': expected 1 to 64");
  EXPECT_EQ(
      refusal(head + "[policy]\nruns = \"a-*, b\"\nhours = \"mon-fri 20:00-07:00\"\nupload_bytes_per_s = \"1MB\""),
      "(read)");
  EXPECT_EQ(
      refusal(head + "[policy]\nhours = \"at night\""),
      "edge.toml:4: policy.hours = 'at night': expected hours such as 22:00-06:00 or mon-fri 20:00-07:00, sat-sun "
      "00:00-24:00 (local time)");
  EXPECT_EQ(refusal(head + "workers = 2.5"), "edge.toml:3: workers = '2.5': expected a whole number");
  EXPECT_EQ(refusal(head + "workrs = 2"), "edge.toml:3: unknown key 'workrs': did you mean 'workers'?");
  EXPECT_EQ(refusal(head + "zzzzzzzzzzz = 2"), "edge.toml:3: unknown key 'zzzzzzzzzzz'");
  EXPECT_EQ(
      refusal(head + "[session]\nheartbeat_interval_ms = \"5 bananas\""),
      "edge.toml:4: session.heartbeat_interval_ms = '5 bananas': expected a duration such as 500ms, 30s, 10m or 2h, "
      "or a number of ms");
  EXPECT_EQ(
      refusal(head + "[session]\nheartbeat_interval_ms = \"30s\""),
      "session.heartbeat_timeout_ms (default) = '20000': expected more than session.heartbeat_interval_ms (30000 ms)");
  EXPECT_EQ(refusal(head + "log_level = \"loud\""),
            "edge.toml:3: log_level = 'loud': expected debug, info, warn, error or off");
  EXPECT_EQ(refusal(head + "gpus = \"all\""),
            "edge.toml:3: gpus = 'all': expected auto, none, or devices such as cuda:0 or cuda:0,cuda:1, each once");
  EXPECT_EQ(refusal(head + "metrics_listen = \"no\""),
            "edge.toml:3: metrics_listen = 'no': expected host:port, auto or off");
  EXPECT_EQ(refusal(head + "workers = [1, 2]"), "edge.toml:3: workers: expected a single text, number, true or false");
  EXPECT_EQ(refusal(head + "region = \"a\\nb\""), "edge.toml:3: unknown key 'region'");
  EXPECT_NE(refusal(head + "log_level = ").find("edge.toml:3: not TOML: "), std::string::npos);
  EXPECT_NE(
      refusal("coordinator = \"hub:7400\"").find("data_dir is missing: give --data-dir, FLUVIAL_DATA_DIR or data_dir"),
      std::string::npos);
  EXPECT_EQ(refusal("data_dir = \"/d\"\ncoordinator = \"hub:0\""),
            "edge.toml:2: coordinator = 'hub:0': expected a port from 1 to 65535");
  EXPECT_EQ(refusal(head, {"--workers", "many"}), "--workers = 'many': expected a whole number");
  EXPECT_EQ(refusal(head, {"--workrs", "1"}), "unknown argument '--workrs': did you mean '--workers'?");
  const auto from_variable = read_settings<EdgeSettings>({"--data-dir", "/d", "--coordinator", "h:1"},
                                                         environment({{"FLUVIAL_LOG_FORMAT", "xml"}}));
  EXPECT_EQ(from_variable.error().message, "FLUVIAL_LOG_FORMAT = 'xml': expected text or json");
  EXPECT_EQ(read_settings<EdgeSettings>({"--config", "/none.toml"}, no_environment()).error().message,
            "/none.toml: cannot be read");
}

TEST_F(ConfigFile, CoordinatorAndAggregator) {
  const auto coordinator =
      read_settings<CoordinatorSettings>({"--data-dir", "/c", "--listen", ":0", "--metrics-listen", "off",
                                          "--token-ttl-s", "10m", "--staging-bytes-max", "1GiB"},
                                         no_environment());
  ASSERT_TRUE(coordinator.ok()) << coordinator.error().message;
  EXPECT_EQ(coordinator->listen, "0.0.0.0:0");
  EXPECT_EQ(coordinator->metrics_listen, "off");
  EXPECT_EQ(coordinator->admin_socket, "/c/admin.sock");
  EXPECT_EQ(coordinator->token_ttl_s, 600u);
  EXPECT_EQ(coordinator->staging_bytes_max, std::optional(std::uint64_t{1} << 30));
  const auto aggregator =
      read_settings<AggregatorSettings>({"--data-dir", "/a", "--coordinator", "h:1"}, no_environment());
  EXPECT_NE(aggregator.error().message.find("advertise is missing"), std::string::npos);
}

TEST(Coordinator, AHostIsOneWithoutSchemePortOrBrackets) {
  const auto host = [](const std::string& text) {
    return read_settings<CoordinatorSettings>({"--data-dir", "/c"}, environment({{"FLUVIAL_PUBLIC_HOST", text}}));
  };
  for (const char* good : {"fl.example.org", "FL-2.example.org", "my_host", "7.example", "10.0.0.7", "2001:db8::7",
                           "::ffff:10.0.0.7", ""}) {
    EXPECT_EQ(host(good).value().public_host, good);
  }
  for (const char* bad :
       {"https://fl.example.org", "fl.example.org:7401", "10.0.0.7:7401", "[2001:db8::7]", "fl example",
        "fl.example.org.", ".org", "fl..org", "300.0.0.7", "10.0.0", "fe80::1%eth0", "fl/x"}) {
    const auto read = host(bad);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_EQ(read.error().message,
              "FLUVIAL_PUBLIC_HOST = '" + std::string(bad) + "': expected a host without scheme, port or brackets");
  }
}

TEST(Coordinator, AFederationHasANameAsMembersDo) {
  const auto named = [](const std::string& name) {
    return read_settings<CoordinatorSettings>({"--data-dir", "/c", "--federation", name}, no_environment());
  };
  EXPECT_EQ(named("eu-hospitals_2.x").value().federation, "eu-hospitals_2.x");
  for (const std::string& bad : {std::string("EU Hospitals"), std::string("-x"), std::string(64, 'a'), std::string()}) {
    EXPECT_EQ(named(bad).error().message, "--federation = '" + bad +
                                              "': expected 1 to 63 characters of a-z 0-9 . _ - that start with a "
                                              "letter or digit");
  }
}

TEST(Coordinator, AnAuthoritysFilesBelongTogether) {
  const auto read = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--data-dir", "/c"});
    return read_settings<CoordinatorSettings>(more, no_environment());
  };
  const std::vector<std::string> two = {"--authority-certificate", "/a.pem", "--authority-root", "/r.pem"};
  EXPECT_EQ(read(two).error().message,
            "--authority-root = '/r.pem': expected authority.certificate, authority.key and authority.root together: "
            "give all three, or none");
  std::vector<std::string> all = two;
  all.insert(all.end(), {"--authority-key", "/k.pem"});
  EXPECT_TRUE(read(all).ok());
}

TEST(Sockets, HavePathsThatASocketCanHave) {
  const std::string deep = "/" + std::string(100, 'd');
  const std::string expected =
      "': expected at most 107 characters, as a socket's path has them: give a shorter one, or a shorter data_dir";
  const auto coordinator = [](std::vector<std::string> arguments) {
    return read_settings<CoordinatorSettings>(arguments, no_environment());
  };
  EXPECT_TRUE(coordinator({"--data-dir", "/c", "--admin-socket", "/" + std::string(106, 'x')}).ok());
  const std::string typed =
      coordinator({"--data-dir", "/c", "--admin-socket", "/" + std::string(107, 'x')}).error().message;
  EXPECT_TRUE(typed.starts_with("--admin-socket = '/xxx") && typed.ends_with(expected)) << typed;
  const std::string followed = coordinator({"--data-dir", deep}).error().message;
  EXPECT_TRUE(followed.starts_with("admin_socket (default) = '" + deep.substr(0, 70))) << followed;
  const std::string edge =
      read_settings<EdgeSettings>({"--data-dir", deep, "--coordinator", "h:1"}, no_environment()).error().message;
  EXPECT_TRUE(edge.starts_with("worker_socket (default) = '")) << edge;
}

TEST_F(ConfigFile, TheStagingBudgetIsTheModelsUnlessAPersonGivesOne) {
  const auto budget = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--data-dir", "/a", "--coordinator", "h:1", "--advertise", "a:1"});
    return read_settings<AggregatorSettings>(more, no_environment());
  };
  EXPECT_EQ(budget({}).value().staging_bytes_max, std::nullopt);
  EXPECT_EQ(budget({"--staging-bytes-max", "auto"}).value().staging_bytes_max, std::nullopt);
  EXPECT_EQ(budget({"--staging-bytes-max", "0"}).value().staging_bytes_max, std::optional<std::uint64_t>(0))
      << "all of them on the disk";
  EXPECT_EQ(budget({"--staging-bytes-max", "much"}).error().message,
            "--staging-bytes-max = 'much': expected a size such as 268435456, 256MiB or 1.5GB, or auto");
  EXPECT_EQ(budget({"--staging-bytes-max", "2TiB"}).error().message,
            "--staging-bytes-max = '2TiB': expected 0 to 1099511627776 bytes, or auto");
}

TEST_F(ConfigFile, AnAggregatorListensOnThePortThatItAdvertises) {
  const auto listen = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--data-dir", "/a", "--coordinator", "h:1"});
    return read_settings<AggregatorSettings>(more, no_environment()).value().listen;
  };
  EXPECT_EQ(listen({"--advertise", "eu.example.org:9000"}), "0.0.0.0:9000");
  EXPECT_EQ(listen({"--advertise", "[2001:db8::7]:9000"}), "0.0.0.0:9000");
  EXPECT_EQ(listen({"--advertise", "eu.example.org:0"}), "0.0.0.0:7410");
  EXPECT_EQ(listen({"--advertise", "eu.example.org:443", "--listen", "10.0.0.7:7410"}), "10.0.0.7:7410")
      << "a port that is forwarded";
}

TEST(CheckSettings, NamesTheKey) {
  CoordinatorSettings settings;
  EXPECT_EQ(check_settings(settings).error().message, "data_dir is missing");
  settings.data_dir = "/d";
  ASSERT_TRUE(check_settings(settings).ok()) << check_settings(settings).error().message;
  settings.session.sessions_max = 0;
  EXPECT_EQ(check_settings(settings).error().message, "session.sessions_max = '0': expected 1 to 1000000");
}

TEST(Describe, NamesFollowFromTheKey) {
  bool found = false;
  for (const SettingInfo& info : describe_settings(Role::kSite)) {
    EXPECT_FALSE(info.help.empty()) << info.key;
    if (info.key != "session.heartbeat_interval_ms") continue;
    found = true;
    EXPECT_EQ(info.flag, "--session-heartbeat-interval-ms");
    EXPECT_EQ(info.env, "FLUVIAL_SESSION_HEARTBEAT_INTERVAL_MS");
    EXPECT_EQ(info.default_value, "5000");
    EXPECT_EQ(info.unit, "ms");
  }
  EXPECT_TRUE(found);
}

TEST(Describe, EveryVariableThatIsReadIsKnown) {
  const std::vector<std::string> known = setting_variables();
  std::vector<std::string> asked;
  const Environment listening = [&asked](const std::string& name) -> std::optional<std::string> {
    asked.push_back(name);
    return std::nullopt;
  };
  (void)read_settings<CoordinatorSettings>({}, listening);
  (void)read_settings<AggregatorSettings>({}, listening);
  (void)read_settings<EdgeSettings>({}, listening);
  EXPECT_GT(asked.size(), 100u);
  for (const std::string& name : asked) EXPECT_NE(std::ranges::find(known, name), known.end()) << name;
}

// Compares a generated part of a page, the first after `heading`; writes it when FLUVIAL_UPDATE_DOCS is set.
void check_page(const std::string& name, const std::string& generated, const std::string& heading = "") {
  const std::string path = std::string(FLUVIAL_SOURCE_DIR) + "/docs/operations/" + name;
  std::string page = text_of_file(path);
  const std::string begin = "<!-- generated -->\n";
  const auto from = page.find(begin, page.find(heading));
  const auto to = page.find("<!-- end -->", from);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos) << path;
  const std::string held = page.substr(from + begin.size(), to - from - begin.size());
  if (held != "\n" + generated + "\n" && std::getenv("FLUVIAL_UPDATE_DOCS") != nullptr) {
    page.replace(from + begin.size(), held.size(), "\n" + generated + "\n");
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(held, "\n" + generated + "\n") << "run it with FLUVIAL_UPDATE_DOCS=1";
}

TEST(Docs, SettingsPageIsTrue) { check_page("settings.md", settings_markdown()); }
TEST(Docs, PlanPageIsTrue) {
  check_page("plan.md", plan_markdown());
  check_page("plan.md", round::optimizers_markdown(), "The optimizer makes the next model");
}

}  // namespace
}  // namespace fluvial::config
