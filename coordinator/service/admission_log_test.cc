#include "coordinator/service/admission_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/store/audit_log.h"
#include "core/tree/test_runtime.h"

namespace fluvial::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AdmissionLogTest : public testing::Test {
 protected:
  Status comes(const std::string& remote, std::uint64_t process = 1) {
    return test_.run(log_.admitted(site_, process, remote));
  }
  std::vector<std::string> entries() {
    const std::vector<store::AuditRow> rows = store::AuditLog(*journal_).rows(0, 1'000).value();
    std::vector<std::string> texts;
    for (const store::AuditRow& row : rows) texts.push_back(row.entry);
    return texts;
  }

  tree::TestRuntime test_{Role::kCoordinator};
  std::unique_ptr<store::CoordinatorJournal> journal_ =
      store::CoordinatorJournal::open(test_.files(), "/journal.sqlite").value();
  AdmissionLog log_{test_.get(), *journal_};
  const identity::PeerIdentity site_{Role::kSite, NodeId(7), "hospital-a", "5e", {}, {}};
};

TEST_F(AdmissionLogTest, ASessionThatFlapsMakesOneEntry) {
  for (int port = 40'000; port < 40'020; ++port) {
    EXPECT_TRUE(comes("192.0.2.7:" + std::to_string(port)).ok()) << "each from a port of its own";
  }
  EXPECT_THAT(entries(),
              ElementsAre(AllOf(HasSubstr(R"("kind":"admitted","by":"member","from":"192.0.2.7:40000")"),
                                HasSubstr(R"("member":"hospital-a","node":7,"role":"site","serial":"5e")"))));
  EXPECT_TRUE(comes("198.51.100.1:40000").ok());
  EXPECT_TRUE(comes("198.51.100.1:40000", 2).ok());
  EXPECT_THAT(entries(), ElementsAre(HasSubstr("the first time"), HasSubstr(R"("detail":"another address")"),
                                     HasSubstr(R"("detail":"another process")")));
}

TEST_F(AdmissionLogTest, AnOperatorIsNamedAsWhoDidIt) {
  const identity::PeerIdentity anna{Role::kOperator, NodeId(9), "anna", "a1", {}, {}};
  EXPECT_TRUE(test_.run(log_.admitted(anna, 0, "192.0.2.8:1")).ok());
  EXPECT_TRUE(test_.run(log_.admitted(anna, 0, "192.0.2.8:2")).ok());
  EXPECT_THAT(entries(), ElementsAre(HasSubstr(R"("by":"operator","operator":"anna","operator_node":9)")));
}

TEST_F(AdmissionLogTest, TwoMachinesWithOneIdentityAreAnEntry) {
  test_.threads().run(log_.held_twice(site_, "192.0.2.7:1"), test_.get().strand);
  EXPECT_THAT(entries(), ElementsAre(AllOf(HasSubstr("identity-held-twice"), HasSubstr("192.0.2.7:1"))));
}

TEST_F(AdmissionLogTest, WhomTheLogDoesNotTakeIsNotAdmitted) {
  test_.files().fail_at(0, store::Fault::kIo);
  const Status refused = comes("192.0.2.7:1");
  test_.files().clear_fault();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("the audit log does not take it"));
}

}  // namespace
}  // namespace fluvial::coordinator
