// The authority on a real folder: founded, below somebody's root, rolled over, and found again after a kill anywhere.
#include "coordinator/service/authorities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/base/testing.h"
#include "core/digest/sha256.h"
#include "core/identity/csr.h"
#include "core/identity/testing.h"
#include "core/identity/verify.h"
#include "core/store/audit_log.h"
#include "core/store/certificate_book.h"

namespace fluvial::coordinator {
namespace {

namespace fs = std::filesystem;
using identity::Certificate;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

WallTime wall_now() { return std::chrono::floor<std::chrono::milliseconds>(SystemClock().wall_now()); }

class AuthoritiesTest : public ::testing::Test {
 protected:
  AuthoritiesTest() { EXPECT_TRUE(open().ok()); }

  Status open(std::optional<identity::IssuerFiles> files = {}) {
    authorities_.reset();
    journal_.reset();
    auto journal = store::CoordinatorJournal::open(files_, folder_ / "journal.sqlite");
    if (!journal.ok()) return journal.error();
    journal_ = std::move(*journal);
    auto opened =
        Authorities::open(*journal_, {.data_dir = folder_.path(), .federation = "test", .files = std::move(files)},
                          telemetry::Logger(std::make_shared<telemetry::CaptureSink>()), wall_now());
    if (!opened.ok()) return opened.error();
    authorities_ = std::move(*opened);
    return {};
  }
  std::shared_ptr<const identity::CertificateAuthority> now() const { return authorities_->live()->current(); }
  AuthorityView view() { return authorities_->view(wall_now()).value(); }
  Status begin(const std::optional<identity::IssuerFiles>& files = {}) {
    return authorities_->begin(files, {}, wall_now());
  }
  Status issue(bool force = false) { return authorities_->issue(force, {}, wall_now()); }
  Status end(bool force = false) { return authorities_->end(force, {}, wall_now()); }

  NodeId enrol(const std::string& name) {
    const Digest secret = sha256(as_byte_span(name));
    EXPECT_TRUE(
        journal_->add_token({name, secret, Role::kSite, name, "", 1000, wall_now() + std::chrono::hours(1)}).ok());
    const auto chain = certificate(name);
    const Buffer key = chain.front().public_key().der();
    store::NodeRow row;
    row.role = Role::kSite;
    row.name = name;
    row.certificate_serial = chain.front().serial_hex();
    row.enrolled_at = wall_now();
    const Digest authority = now()->key_id();
    const auto enrolled =
        journal_->redeem_token(secret, row, wall_now(), {key.span(), chain.front().not_after(), authority});
    EXPECT_TRUE(enrolled.ok()) << enrolled.error().message;
    return enrolled->id;
  }
  std::vector<Certificate> certificate(const std::string& name) {
    const auto made = identity::make_key_and_csr().value();
    const identity::Grant grant{{Role::kSite, NodeId(7), name}, std::chrono::hours(1)};
    return now()->issue_chain(made.csr_der.span(), grant, wall_now()).value();
  }
  bool is_trusted(const std::vector<Certificate>& chain) {
    return identity::verify_chain(chain, now()->authorities(), wall_now(), {}).ok();
  }
  std::vector<std::string> key_files() const {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_ / "ca")) {
      const std::string name = file.path().filename().string();
      if (name.ends_with("key.pem")) names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }
  identity::IssuerFiles save(const identity::Issuer& issuer, const std::string& name) {
    const identity::IssuerFiles files{folder_ / (name + ".pem"), folder_ / (name + "-key.pem"),
                                      folder_ / (name + "-root.pem")};
    EXPECT_TRUE(Certificate::save_chain({issuer.chain.front()}, files.certificate).ok());
    EXPECT_TRUE(issuer.key.save(files.key).ok());
    EXPECT_TRUE(Certificate::save_chain({issuer.chain.back()}, files.root).ok());
    return files;
  }
  // The data folder's files as they are, to be put back as a kill would have left them.
  void copy(const std::string& from, const std::string& to) {
    fs::remove_all(to);
    fs::copy(from, to, fs::copy_options::recursive);
  }

  const TemporaryFolder folder_;
  store::PosixFileSystem files_;
  std::unique_ptr<store::CoordinatorJournal> journal_;
  std::unique_ptr<Authorities> authorities_;
};

TEST_F(AuthoritiesTest, WithoutARolloverAFolderIsWhatItAlwaysWas) {
  EXPECT_THAT(key_files(), ElementsAre("ca-key.pem"));
  const std::string pin = now()->pin();
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(now()->pin(), pin);
  EXPECT_EQ(now()->trust(), 0U);
  EXPECT_EQ(view().phase, RolloverPhase::kNone);
  EXPECT_EQ(view().authorities.size(), 1U);
  EXPECT_FALSE(issue().ok());
  EXPECT_FALSE(end().ok());
}

TEST_F(AuthoritiesTest, ARolloverWaitsForThoseItConcernsAndLeavesNothingOfTheOldOne) {
  const NodeId site = enrol("hospital-a");
  const std::vector<Certificate> before = certificate("hospital-a");
  const std::string old_pin = now()->pin();
  ASSERT_TRUE(begin().ok());
  EXPECT_FALSE(begin().ok());
  EXPECT_EQ(now()->pin(), old_pin);  // tokens go on naming it
  EXPECT_EQ(now()->authorities().size(), 2U);
  EXPECT_THAT(view().without, ElementsAre("hospital-a"));
  EXPECT_THAT(issue().error().message, HasSubstr("hospital-a"));

  ASSERT_TRUE(authorities_->shown(site, now()->trust()).ok());
  ASSERT_TRUE(issue().ok());
  EXPECT_NE(now()->pin(), old_pin);
  ASSERT_NE(now()->before(), nullptr);
  EXPECT_EQ(now()->before()->pin(), old_pin);
  EXPECT_TRUE(is_trusted(before));
  EXPECT_TRUE(is_trusted(certificate("hospital-a")));
  EXPECT_THAT(view().relying, ElementsAre("hospital-a"));
  EXPECT_THAT(end().error().message, HasSubstr("hospital-a"));

  const std::vector<Certificate> renewed = certificate("hospital-a");
  // As a renewal leaves it: issued by the next one, and used.
  const Digest authority = now()->key_id();
  store::CertificateBook book(*journal_);
  const auto current = book.current_of(site).value().value();
  ASSERT_TRUE(book.renewed({renewed.front().serial_hex(), site, current.key, wall_now(), renewed.front().not_after(),
                            current.serial, authority},
                           wall_now())
                  .ok());
  EXPECT_THAT(view().relying, ElementsAre("hospital-a"));  // the answer may have been lost
  ASSERT_TRUE(
      book.saw({renewed.front().serial_hex(), site, current.key, renewed.front().not_after()}, wall_now()).ok());
  EXPECT_TRUE(view().relying.empty());
  ASSERT_TRUE(end().ok());
  EXPECT_FALSE(is_trusted(before));
  EXPECT_EQ(now()->authorities().size(), 1U);
  EXPECT_EQ(now()->before(), nullptr);
  EXPECT_THAT(key_files(), ElementsAre("ca-key.pem"));
  EXPECT_EQ(identity::pin_of(Certificate::load_chain(folder_ / "ca/ca.pem")->back()), now()->pin());
  ASSERT_TRUE(begin().ok());  // and so on, years later
}

// The journal remembers certificates for a month after their end: those of the first authority prove nothing now.
TEST_F(AuthoritiesTest, ASecondRolloverSoonAfterTheFirstWaitsAsWell) {
  const NodeId site = enrol("hospital-a");
  store::CertificateBook book(*journal_);
  const auto first = book.current_of(site).value().value();
  ASSERT_TRUE(book.saw({first.serial, site, first.key, first.ends_at}, wall_now()).ok());
  const auto renews = [&](const std::string& before) {
    const std::vector<Certificate> chain = certificate("hospital-a");
    const Digest authority = now()->key_id();
    const store::RenewedCertificate row{chain.front().serial_hex(), site,   first.key, wall_now(),
                                        chain.front().not_after(),  before, authority};
    EXPECT_TRUE(book.renewed(row, wall_now()).ok());
    EXPECT_TRUE(book.saw({row.serial, site, first.key, row.ends_at}, wall_now()).ok());
    return row.serial;
  };
  ASSERT_TRUE(begin().ok());
  ASSERT_TRUE(issue(true).ok());
  const std::string second = renews(first.serial);
  ASSERT_TRUE(end().ok());

  ASSERT_TRUE(begin().ok());
  ASSERT_TRUE(issue(true).ok());
  EXPECT_THAT(view().relying, ElementsAre("hospital-a"));
  EXPECT_THAT(end().error().message, HasSubstr("hospital-a"));
  renews(second);
  EXPECT_TRUE(view().relying.empty());
  EXPECT_TRUE(end().ok());
}

// Its row does not say whose it is: it may be of the one that is to go.
TEST_F(AuthoritiesTest, WhatARestoreHasLostAndItsHolderShowsIsWaitedFor) {
  ASSERT_TRUE(begin().ok());
  ASSERT_TRUE(issue(true).ok());
  ASSERT_TRUE(end(true).ok());
  const NodeId site = enrol("hospital-a");
  store::CertificateBook book(*journal_);
  const auto current = book.current_of(site).value().value();
  ASSERT_TRUE(book.saw({current.serial, site, current.key, current.ends_at}, wall_now()).ok());
  ASSERT_TRUE(begin().ok());
  ASSERT_TRUE(issue(true).ok());
  ASSERT_TRUE(
      book.saw({"0c0ffee", site, current.key, wall_now() + std::chrono::hours(1), wall_now()}, wall_now()).ok());
  EXPECT_THAT(view().relying, ElementsAre("hospital-a"));
}

TEST_F(AuthoritiesTest, ANextOneIsTakenBackBeforeItIssues) {
  const std::string pin = now()->pin();
  ASSERT_TRUE(begin().ok());
  const std::uint64_t trust = now()->trust();
  ASSERT_TRUE(authorities_->undo({}, wall_now()).ok());
  EXPECT_EQ(now()->pin(), pin);
  EXPECT_EQ(now()->authorities().size(), 1U);
  EXPECT_GT(now()->trust(), trust);  // so that members forget it
  EXPECT_THAT(key_files(), ElementsAre("ca-key.pem"));
  ASSERT_TRUE(begin().ok());
  ASSERT_TRUE(issue(true).ok());
  EXPECT_FALSE(authorities_->undo({}, wall_now()).ok());
}

TEST_F(AuthoritiesTest, AStartAfterAKillBetweenAnyTwoWritesGoesOnInThePhaseBeforeOrAfter) {
  const std::string ca = folder_ / "ca";
  const auto reopened = [&](RolloverPhase phase, const std::string& pin) {
    ASSERT_TRUE(open().ok());
    EXPECT_EQ(view().phase, phase);
    EXPECT_EQ(now()->pin(), pin);
    EXPECT_TRUE(is_trusted(certificate("hospital-a")));
  };
  const std::string old_pin = now()->pin();
  // Of `begin`: the key is there, the journal does not know it.
  std::ofstream(ca + "/authority-0123456789abcdef-key.pem") << "cut short";
  reopened(RolloverPhase::kNone, old_pin);
  EXPECT_THAT(key_files(), ElementsAre("ca-key.pem"));

  ASSERT_TRUE(begin().ok());
  reopened(RolloverPhase::kBegun, old_pin);
  ASSERT_TRUE(fs::exists(ca + "/ca-key.pem"));
  copy(ca, folder_ / "as begun");

  // Of `issue`: the journal knows, and of the two files none, or the key alone, is replaced.
  ASSERT_TRUE(issue(true).ok());
  const std::string new_pin = now()->pin();
  copy(ca, folder_ / "as issuing");
  copy(folder_ / "as begun", ca);
  reopened(RolloverPhase::kIssuing, new_pin);
  EXPECT_EQ(identity::pin_of(Certificate::load_chain(ca + "/ca.pem")->back()), new_pin);
  fs::copy_file(folder_ / "as begun/ca.pem", ca + "/ca.pem", fs::copy_options::overwrite_existing);
  reopened(RolloverPhase::kIssuing, new_pin);

  // Of `end`: the journal knows, and the old key is still there.
  ASSERT_TRUE(end(true).ok());
  copy(folder_ / "as issuing", ca);
  reopened(RolloverPhase::kNone, new_pin);
  EXPECT_THAT(key_files(), ElementsAre("ca-key.pem"));
}

TEST_F(AuthoritiesTest, WithoutTheKeyNothingStartsAndTheFileIsNamed) {
  ASSERT_TRUE(begin().ok());
  for (const std::string& name : key_files()) fs::remove(folder_ / ("ca/" + name));
  const Status opened = open();
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("restore the file " + (folder_ / "ca/authority-")));
}

TEST_F(AuthoritiesTest, FromItsOwnAuthorityToACompanysAndOnToALaterCertificateBelowTheSameRoot) {
  const identity::Issuer root = identity::make_test_root("company");
  const identity::Issuer first = identity::make_test_authority(root, {.name = "test"});
  // The settings alone would cut every member off.
  const Status refused = open(save(first, "first"));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("fluvial authority rollover begin"));
  ASSERT_TRUE(open().ok());

  ASSERT_TRUE(begin(save(first, "first")).ok());
  ASSERT_TRUE(issue(true).ok());
  ASSERT_TRUE(end(true).ok());
  EXPECT_EQ(now()->pin(), identity::pin_of(root.chain.front()));
  const std::vector<Certificate> before = certificate("hospital-a");
  const std::uint64_t trust = now()->trust();

  // Five years later: another key below the same root. Nobody has to learn anything.
  const identity::Issuer later = identity::make_test_authority(root, {.name = "test"});
  ASSERT_TRUE(open(save(later, "later")).ok());
  EXPECT_EQ(now()->certificate().serial_hex(), later.chain.front().serial_hex());
  EXPECT_EQ(now()->trust(), trust);
  EXPECT_TRUE(is_trusted(before));
  EXPECT_TRUE(is_trusted(certificate("hospital-a")));
  EXPECT_THAT(begin(save(first, "first")).error().message, HasSubstr("no rollover is needed"));
  // The files may go again, and an older one there changes nothing.
  fs::remove(folder_ / "later-key.pem");
  ASSERT_TRUE(
      open(identity::IssuerFiles{folder_ / "later.pem", folder_ / "later-key.pem", folder_ / "later-root.pem"}).ok());
  ASSERT_TRUE(open(save(first, "first")).ok());
  EXPECT_EQ(now()->certificate().serial_hex(), later.chain.front().serial_hex());
}

TEST(AuthoritiesFounding, BelowACompanysRootFromTheFirstStartOn) {
  const TemporaryFolder folder;
  store::PosixFileSystem files;
  const auto journal = store::CoordinatorJournal::open(files, folder / "journal.sqlite").value();
  const identity::Issuer issuer =
      identity::make_test_authority(identity::make_test_root("company"), {.name = "clinics"});
  const identity::IssuerFiles named{folder / "a.pem", folder / "a-key.pem", folder / "root.pem"};
  ASSERT_TRUE(Certificate::save_chain({issuer.chain.front()}, named.certificate).ok());
  ASSERT_TRUE(issuer.key.save(named.key).ok());
  ASSERT_TRUE(Certificate::save_chain({issuer.chain.back()}, named.root).ok());
  const AuthorityOptions options{.data_dir = folder.path(), .federation = "clinics", .files = named};
  const auto founded =
      Authorities::open(*journal, options, telemetry::Logger(std::make_shared<telemetry::CaptureSink>()), wall_now());
  ASSERT_TRUE(founded.ok()) << founded.error().message;
  EXPECT_EQ((*founded)->live()->current()->pin(), identity::pin_of(issuer.chain.back()));
  // From then on it does not depend on the files, nor on the settings.
  for (const std::string& file : {named.certificate, named.key, named.root}) fs::remove(file);
  const auto again = Authorities::open(*journal, {.data_dir = folder.path(), .federation = "clinics"},
                                       telemetry::Logger(std::make_shared<telemetry::CaptureSink>()), wall_now());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)->live()->current()->pin(), identity::pin_of(issuer.chain.back()));
}

}  // namespace
}  // namespace fluvial::coordinator
