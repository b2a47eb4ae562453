#include <gtest/gtest.h>

#include "cli/doctor/judge_test_support.h"

namespace fluvial::cli::doctor {
namespace {

using std::chrono::days;
using ::testing::HasSubstr;

const WallTime kNow = std::chrono::sys_days(std::chrono::year(2026) / 5 / 1);

TEST(DoctorProcess, Answers) {
  EXPECT_THAT(judge(ProcessFacts{.answers = true, .name = "a", .parent = "eu", .connected = true, .workers = 1}, kSite),
              FindsNothing());
  EXPECT_THAT(judge(ProcessFacts{.why = "not started"}, kSite), FindsNothing()) << "it need not run";
}

TEST(DoctorProcess, IsNotWell) {
  EXPECT_THAT(judge(ProcessFacts{.answers = true, .name = "a", .workers = 1}, kSite),
              Finds(kError, "has no parent", "the coordinator"));
  EXPECT_THAT(judge(ProcessFacts{.answers = true, .name = "a", .connected = true}, kSite),
              Finds(kWarning, "none is attached", "training script"));
  EXPECT_THAT(judge(ProcessFacts{.answers = true,
                                 .name = "coordinator",
                                 .connected = true,
                                 .fault = "the journal: resource_exhausted: disk full"},
                    kCoordinator),
              Finds(kError, "disk full", "free or repair"));
}

CertificateFacts enrolled() {
  CertificateFacts facts{.folder = "/d/identity", .loaded = {}, .role = Role::kSite, .name = "a", .federation = "f"};
  facts.not_before = kNow - days(10);
  facts.not_after = kNow + days(80);
  facts.authority_not_after = kNow + days(5000);
  facts.key_file = "/d/identity/key.pem";
  facts.key_mode = 0600;
  facts.folder_mode = 0700;
  facts.now = kNow;
  return facts;
}

TEST(DoctorCertificate, Good) {
  EXPECT_THAT(judge(enrolled(), kSite), FindsNothing());
  EXPECT_THAT(text_of(judge(enrolled(), kSite)),
              HasSubstr("certificate of site a in federation f, from 2026-04-21 to 2026-07-20: 80 days left"));
}

TEST(DoctorCertificate, Ends) {
  CertificateFacts facts = enrolled();
  facts.not_after = kNow + days(2);
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "2 days left", "a new token"));
  facts.not_after = kNow;
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "expired", "a new token"));
  facts = enrolled();  // for 24 hours
  facts.not_before = kNow - std::chrono::hours(24 + 16);
  facts.not_after = kNow + std::chrono::hours(8);
  EXPECT_THAT(judge(facts, kSite).front().what, HasSubstr("8 h left, renews itself"));
  facts.not_before -= std::chrono::hours(3);
  facts.not_after -= std::chrono::hours(3);
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "5 h left", "renews itself while its process runs"));
  facts = enrolled();
  facts.not_before = kNow + days(1);
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "not valid yet", "clock is behind"));
  facts = enrolled();
  facts.authority_not_after = facts.not_after;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "authority ends on 2026-07-20", "rolls over"));
  facts.role.reset();  // the coordinator's: no certificate of a member
  facts.not_after = kNow + days(2);
  EXPECT_THAT(judge(facts, kCoordinator), Finds(kWarning, "2 days left", "by a rollover"));
}

TEST(DoctorCertificate, IsNotThereOrDamaged) {
  CertificateFacts facts = enrolled();
  facts.key_mode.reset();
  facts.loaded = Error{Code::kNotFound, "/d/identity/cert.pem: no such file"};
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "not enrolled", "fluvial enroll"));
  EXPECT_THAT(judge(facts, kCoordinator), FindsNothing()) << "its first start makes it";
  facts.loaded = Error{Code::kDataLoss, "/d/identity/cert.pem does not belong to the key.pem beside it"};
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "does not belong", "enrol again"));
}

TEST(DoctorCertificate, OfAnotherRole) {
  EXPECT_THAT(judge(enrolled(), kAggregator), Finds(kError, "a is enrolled as site", "data_dir"));
}

TEST(DoctorCertificate, ThatOthersMayReadOrReplace) {
  CertificateFacts facts = enrolled();
  facts.key_mode = 0644;
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "has mode 0644", "chmod 600"));
  facts.loaded = Error{Code::kFailedPrecondition, "key file /d/identity/key.pem has mode 0644"};
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "has mode 0644", "chmod 600")) << "said once";
  facts = enrolled();
  facts.folder_mode = 0777;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "has mode 0777", "chmod 700"));
}

FolderFacts good_folder() {
  FolderFacts facts{.path = "/d", .exists = true, .is_folder = true, .writable = true, .mode = 0750};
  facts.owner = facts.user = "fluvial";
  facts.file_system = "ext4";
  facts.free_bytes = std::uint64_t{100} << 30;
  facts.free_files = 1'000'000;
  facts.speed = DiskSpeed{.write_bytes_per_s = 900e6, .fsync_median_s = 0.002, .fsync_max_s = 0.02};
  return facts;
}

TEST(DoctorDisk, Good) {
  EXPECT_THAT(judge(good_folder(), kSite), FindsNothing());
  EXPECT_THAT(text_of(judge(good_folder(), kSite)), HasSubstr("858.3 MiB/s written, fsync 2 ms (at most 20 ms)"));
}

TEST(DoctorDisk, CannotBeUsed) {
  FolderFacts facts{.path = "/d"};
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "not there", "fluvial enroll"));
  EXPECT_THAT(judge(facts, kCoordinator), Finds(kError, "not there", "first start"));
  EXPECT_THAT(judge(facts, Node{}), FindsNothing());
  facts.exists = true;
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "is no folder", "data_dir"));
  facts = good_folder();
  facts.writable = false;
  facts.user = "nobody";
  EXPECT_THAT(judge(facts, kSite),
              Finds(kError, "user nobody may not write to it (mode 0750, owner fluvial)", "chown"));
}

TEST(DoctorDisk, IsReadOnlyWhoeverOwnsIt) {
  FolderFacts facts = good_folder();
  facts.writable = false;
  facts.read_only = true;
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "mounted read-only", "dmesg"));
  EXPECT_THAT(text_of(judge(facts, kSite)), testing::Not(HasSubstr("chown")));
}

TEST(DoctorDisk, Room) {
  FolderFacts facts = good_folder();
  facts.free_bytes = std::uint64_t{500} << 20;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "500.0 MiB free", "1.0 GiB should be free"));
  facts.free_bytes = 10 << 20;
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "10.0 MiB free", "larger disk"));
  facts.free_bytes = std::uint64_t{3} << 30;
  Node node = kSite;
  node.model_bytes = std::uint64_t{1} << 30;
  EXPECT_THAT(judge(facts, node), Finds(kWarning, "a model is 1.0 GiB", "4.0 GiB should be free"));
  facts = good_folder();
  facts.free_files = 12;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "room for 12 more files", "df -i"));
}

TEST(DoctorDisk, Speed) {
  FolderFacts facts = good_folder();
  facts.speed->fsync_median_s = 0.2;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "fsync 200 ms", "write cache"));
  facts = good_folder();
  facts.speed->write_bytes_per_s = 8e6;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "7.6 MiB/s written", "faster disk"));
  facts.speed = Error{Code::kUnavailable, "fsync fails: Input/output error"};
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "Input/output error", "smartctl"));
}

TEST(DoctorDisk, WhatItLiesOn) {
  FolderFacts facts = good_folder();
  facts.file_system = "tmpfs";
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "lies in memory", "a disk for data_dir"));
  facts.file_system = "overlay";
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "own layer", "a volume"));
  facts.file_system = "nfs";
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "another machine", "a local disk"));
  facts = good_folder();
  facts.mode = 0755;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "has mode 0755", "chmod 750"));
}

TEST(DoctorJournal, Health) {
  EXPECT_THAT(judge(JournalFacts{.path = "/d/j"}), FindsNothing());
  EXPECT_THAT(judge(JournalFacts{.path = "/d/j", .exists = true, .held = true}), FindsNothing());
  EXPECT_THAT(judge(JournalFacts{.path = "/d/j", .exists = true, .checked = {}}), FindsNothing());
  EXPECT_THAT(judge(JournalFacts{.path = "/d/j", .exists = true}), FindsNothing()) << "not checked";
  EXPECT_THAT(
      judge(JournalFacts{.path = "/d/j", .exists = true, .checked = Error{Code::kDataLoss, "page 7 is damaged"}}),
      Finds(kError, "page 7 is damaged", "restore a backup"));
}

WorkerSocketFacts good_socket() {
  return {.path = "/run/w.sock",
          .exists = true,
          .is_socket = true,
          .listening = true,
          .mode = 0600,
          .owner = "fluvial",
          .user = "fluvial"};
}

TEST(DoctorWorkers, TheirSocket) {
  EXPECT_THAT(judge(good_socket(), true), FindsNothing());
  EXPECT_THAT(judge(WorkerSocketFacts{.path = "/run/w.sock"}, false), FindsNothing());
  EXPECT_THAT(judge(WorkerSocketFacts{.path = "/run/w.sock"}, true), Finds(kError, "not there", "worker_socket"));
  WorkerSocketFacts facts = good_socket();
  facts.listening = false;
  EXPECT_THAT(judge(facts, true), Finds(kError, "nobody listens", "restart"));
  facts = good_socket();
  facts.user = "alice";
  EXPECT_THAT(judge(facts, true), Finds(kWarning, "for user fluvial and root", "run it as fluvial"));
  facts.path = "/" + std::string(120, 'x');
  EXPECT_THAT(judge(facts, true), Finds(kError, "longer than 107", "shorter"));
}

TEST(DoctorPython, ThePackage) {
  EXPECT_THAT(judge(PythonFacts{}), FindsNothing());
  EXPECT_THAT(judge(PythonFacts{.interpreter = "/usr/bin/python3", .ours = "0.2.0"}), FindsNothing());
  EXPECT_THAT(judge(PythonFacts{.interpreter = "/usr/bin/python3", .version = "0.2.0", .ours = "0.2.0"}),
              FindsNothing());
  EXPECT_THAT(judge(PythonFacts{.interpreter = "/usr/bin/python3", .version = "0.1.0", .ours = "0.2.0"}),
              Finds(kWarning, "the package fluvial 0.1.0, this is 0.2.0", "pip install"));
}

}  // namespace
}  // namespace fluvial::cli::doctor
