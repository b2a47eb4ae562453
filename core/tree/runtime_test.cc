// What is counted of sessions, and that the words for it are the declared ones.
#include "core/tree/runtime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/telemetry/declared.h"
#include "core/tree/renewed.h"
#include "kernels/codec.h"

namespace fluvial::tree {
namespace {

std::set<std::string> values_of(std::string_view metric, std::string_view label, Role role) {
  std::set<std::string> values;
  for (const telemetry::Label& one : telemetry::find_declared(metric, role)->labels) {
    if (one.name != label) continue;
    for (const telemetry::LabelValue& value : one.values) values.insert(std::string(value.text));
  }
  return values;
}

std::set<std::string> words(std::span<const std::string_view> reasons, std::set<std::string> more) {
  for (const std::string_view reason : reasons) more.insert(std::string(reason));
  return more;
}

TEST(IoThreads, AreByRoleAndCoresUnlessAPersonSays) {
  config::CommonSettings settings;
  for (const Role parent : {Role::kCoordinator, Role::kAggregator}) {
    EXPECT_EQ(io_threads(settings, parent, 0), 1U) << "nobody knows how many";
    EXPECT_EQ(io_threads(settings, parent, 1), 1U);
    EXPECT_EQ(io_threads(settings, parent, 2), 1U);
    EXPECT_EQ(io_threads(settings, parent, 4), 2U);
    EXPECT_EQ(io_threads(settings, parent, 8), 4U);
    EXPECT_EQ(io_threads(settings, parent, 128), 4U);
  }
  EXPECT_EQ(io_threads(settings, Role::kSite, 128), 1U);
  settings.io_threads = 7;
  EXPECT_EQ(io_threads(settings, Role::kSite, 2), 7U);
  EXPECT_EQ(io_threads(settings, Role::kCoordinator, 64), 7U);
}

TEST(ObservingHooks, TheWordsOfRefusalsAreTheDeclaredOnes) {
  namespace reason = net::reason;
  EXPECT_EQ(values_of("handshakes_total", "result", Role::kSite), words(reason::kHandshake, {"ok"}));
  EXPECT_EQ(values_of("frames_refused_total", "reason", Role::kSite), words(reason::kFrame, {}));
  EXPECT_EQ(
      values_of("sessions_refused_total", "reason", Role::kSite),
      words(reason::kHandshake, words(reason::kFrame, {std::string(reason::kNotAdmitted), std::string(reason::kSilent),
                                                       std::string(reason::kStuck),
                                                       std::string(reason::kTooManyOfMember), kCertificateEnded})));
}

TEST(ObservingHooks, TheCodecsAreTheDeclaredOnes) {
  std::set<std::string> codecs{"partial"};
  std::string names = kernels::codec_names() + ", ";
  for (std::size_t end = names.find(", "); end != names.npos; end = names.find(", ")) {
    codecs.insert(names.substr(0, end));
    names.erase(0, end + 2);
  }
  EXPECT_EQ(values_of("update_bytes_total", "codec", Role::kAggregator), codecs);
}

TEST(ObservingHooks, CountsSessionsByTierWhileTheyRun) {
  telemetry::Metrics metrics(Role::kAggregator, "test");
  const auto hooks = observing_hooks(metrics, telemetry::null_logger());
  const auto bytes = [&](const char* tier) {
    return metrics.counter("received_bytes_total", {{"tier", tier}}).value();
  };
  hooks->session_opened("a");
  hooks->session_opened("b");
  hooks->session_moved(true, {.more = {.bytes_in = 10, .frames_in = 2}, .outbox_bytes_more = 7});
  hooks->session_moved(false, {.more = {.bytes_in = 5}});
  hooks->session_closed("a", {Code::kCancelled, "over"}, {.bytes_in = 10});
  EXPECT_EQ(bytes("children"), 10);
  EXPECT_EQ(bytes("parent"), 5);
  EXPECT_EQ(metrics.gauge("outbox_bytes", {{"tier", "children"}}).value(), 7);
  EXPECT_EQ(metrics.counter("frames_received_total", {{"tier", "children"}}).value(), 2);
  EXPECT_EQ(metrics.gauge("sessions_open").value(), 1);
  EXPECT_EQ(metrics.counter("sessions_accepted_total").value(), 2);
  EXPECT_EQ(metrics.counter("handshakes_total", {{"result", "ok"}}).value(), 2);
}

TEST(ObservingHooks, CountsWhatIsRefusedByWhatItWas) {
  telemetry::Metrics metrics(Role::kCoordinator, "test");
  const auto hooks = observing_hooks(metrics, telemetry::null_logger());
  for (const std::string_view why : {net::reason::kOldTls, net::reason::kBadHeader, net::reason::kSilent}) {
    hooks->refused(why, "192.0.2.7:1", "");
    EXPECT_EQ(metrics.counter("sessions_refused_total", {{"reason", std::string(why)}}).value(), 1) << why;
  }
  EXPECT_EQ(metrics.counter("handshakes_total", {{"result", "old_tls"}}).value(), 1);
  EXPECT_EQ(metrics.counter("frames_refused_total", {{"reason", "bad_header"}}).value(), 1);
  EXPECT_EQ(metrics.counter("heartbeat_timeouts_total").value(), 1);
}

}  // namespace
}  // namespace fluvial::tree
