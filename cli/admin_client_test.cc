#include "cli/admin_client.h"

#include <gtest/gtest.h>

#include <map>

namespace fluvial::cli {
namespace {

// As the command line and these variables together give it: a variable is taken where nothing was typed.
std::string place(AdminOptions typed, const std::map<std::string, std::string>& variables) {
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  if (typed.admin.empty()) typed.admin = environment("FLUVIAL_ADMIN").value_or("");
  if (typed.admin_socket.empty()) typed.admin_socket = environment("FLUVIAL_ADMIN_SOCKET").value_or("");
  const std::string usual = AdminOptions().data_dir;
  if (typed.data_dir == usual) typed.data_dir = environment("FLUVIAL_DATA_DIR").value_or(usual);
  return typed.place(environment);
}

TEST(AdminPlace, WhatIsTypedGoesBeforeEveryVariable) {
  const std::map<std::string, std::string> live = {
      {"FLUVIAL_ADMIN", "https://live:7003"}, {"FLUVIAL_ADMIN_SOCKET", "/live.sock"}, {"FLUVIAL_DATA_DIR", "/live"}};
  EXPECT_EQ(place({}, live), "https://live:7003");
  EXPECT_EQ(place({.data_dir = "/test"}, live), "/test/admin.sock");
  EXPECT_EQ(place({.admin_socket = "/test.sock"}, live), "/test.sock");
  EXPECT_EQ(place({.admin_socket = "/test.sock", .data_dir = "/test"}, live), "/test.sock");
  EXPECT_EQ(place({.admin = "https://test:7003", .admin_socket = "/test.sock"}, live), "https://test:7003");
  EXPECT_EQ(place({.data_dir = "/test"}, {{"FLUVIAL_ADMIN_SOCKET", "/live.sock"}}), "/test/admin.sock");
  EXPECT_EQ(place({}, {{"FLUVIAL_ADMIN_SOCKET", "/live.sock"}, {"FLUVIAL_DATA_DIR", "/live"}}), "/live.sock");
  EXPECT_EQ(place({}, {{"FLUVIAL_DATA_DIR", "/live"}}), "/live/admin.sock");
  EXPECT_EQ(place({}, {}), "/var/lib/fluvial/admin.sock");
}

}  // namespace
}  // namespace fluvial::cli
