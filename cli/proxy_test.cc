#include "cli/proxy.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "core/net/proxy.h"

namespace fluvial::cli {
namespace {

config::Environment environment(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(ChooseProxy, TheSettingComesBeforeTheEnvironment) {
  const auto both = environment({{"https_proxy", "http://env:1"}, {"no_proxy", "a.example"}});
  const ProxyChoice set = choose_proxy("http://set:2", "", both);
  EXPECT_EQ(set.url, "http://set:2");
  EXPECT_EQ(set.no_proxy, "a.example");
  EXPECT_EQ(choose_proxy("http://set:2", "b.example", both).no_proxy, "b.example");
  EXPECT_EQ(choose_proxy("off", "", both).url, "off");
  EXPECT_EQ(choose_proxy("", "", both).url, "http://env:1");
  EXPECT_EQ(choose_proxy("", "", environment({{"HTTPS_PROXY", "http://env:1"}, {"https_proxy", ""}})).url,
            "http://env:1");
  EXPECT_EQ(choose_proxy("", "", environment({{"http_proxy", "http://env:1"}})).url, "");
}

TEST(ChooseProxy, TheEnvironmentsIsNotForThisMachine) {
  const ProxyChoice choice = choose_proxy("", "", environment({{"https_proxy", "http://env:1"}, {"NO_PROXY", "x"}}));
  const auto rules = net::proxy_rules(choice.url, choice.no_proxy).value();
  for (const char* here : {"localhost", "127.0.0.1", "127.1.2.3", "::1", "x"}) {
    EXPECT_EQ(rules->of({here, 7400}), nullptr) << here;
  }
  EXPECT_NE(rules->of({"fl.example.org", 7400}), nullptr);
  const ProxyChoice set = choose_proxy("http://set:2", "", environment({}));
  EXPECT_NE(net::proxy_rules(set.url, set.no_proxy).value()->of({"127.0.0.1", 7400}), nullptr);
}

}  // namespace
}  // namespace fluvial::cli
