#include "core/identity/issuer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>

#include <filesystem>

#include "core/base/testing.h"
#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/openssl_internal.h"
#include "core/identity/seeded_key.h"
#include "core/identity/test_support.h"
#include "core/identity/testing.h"
#include "core/identity/verify.h"

namespace fluvial::identity {
namespace {

using ::testing::HasSubstr;

Member some_site() { return {Role::kSite, NodeId(7), "hospital-a"}; }

std::vector<Certificate> issue(const CertificateAuthority& authority, Member member,
                               std::chrono::seconds validity = std::chrono::hours(1)) {
  const auto made = make_key_and_csr().value();
  return authority.issue_chain(made.csr_der.span(), {std::move(member), validity}, wall_now()).value();
}

IssuerFiles save(const Issuer& issuer, const std::string& folder) {
  const std::vector<Certificate> without_root(issuer.chain.begin(), issuer.chain.end() - 1);
  const IssuerFiles files{folder + "/issuing.pem", folder + "/issuing-key.pem", folder + "/root.pem"};
  EXPECT_TRUE(Certificate::save_chain(without_root, files.certificate).ok());
  EXPECT_TRUE(issuer.key.save(files.key).ok());
  EXPECT_TRUE(Certificate::save_chain({issuer.chain.back()}, files.root).ok());
  return files;
}

// A simulation whose members have certificates runs the same way in each process.
TEST(Issuers, TheSameKeyAndTimeMakeTheSameCertificate) {
  const WallTime founded = std::chrono::sys_days(std::chrono::year(2023) / 1 / 1);
  const auto made = [&](std::chrono::seconds later) {
    auto key = seeded_key(Digest{}).value();
    return make_issuer(std::move(key), "f", founded + later, std::chrono::hours(1)).value().chain.front().pem();
  };
  EXPECT_EQ(made({}), made({}));
  EXPECT_NE(made({}), made(std::chrono::seconds(1)));
}

TEST(Issuer, BelowARootThatIsKeptElsewhereItIssuesWhatMembersAcceptWithThatRootAlone) {
  const TemporaryFolder folder;
  const Issuer root = make_test_root("company root");
  const Issuer below = make_test_authority(root, {.name = "clinics"});
  const auto loaded = load_issuer(save(below, folder.path()), wall_now());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto authority = CertificateAuthority::of(*loaded);
  EXPECT_EQ(authority.pin(), pin_of(root.chain.front()));
  EXPECT_EQ(authority.chain().size(), 2U);
  EXPECT_EQ(authority.authorities().size(), 1U);

  const auto chain = issue(authority, some_site());
  ASSERT_EQ(chain.size(), 2U);
  const auto identity = verify_chain(chain, {root.chain.front()}, wall_now(), {});
  ASSERT_TRUE(identity.ok()) << identity.error().message;
  EXPECT_EQ(identity->name, "hospital-a");
  // Without what is between, or with another root, nobody is anybody.
  EXPECT_FALSE(verify_chain({chain.front()}, {root.chain.front()}, wall_now(), {}).ok());
  EXPECT_FALSE(verify_chain(chain, make_test_root("company root").chain, wall_now(), {}).ok());
  EXPECT_EQ(federation_of(Credentials{below.key, chain, authority.authorities()}), "clinics");
}

TEST(Issuer, ALongerPathIsFineAndItsFileMayHoldTheRootToo) {
  const TemporaryFolder folder;
  const Issuer middle =
      make_test_authority(make_test_root("root"), {.basic_constraints = "critical,CA:TRUE,pathlen:1"});
  const Issuer below = make_test_authority(middle);
  const IssuerFiles files = save(below, folder.path());
  ASSERT_TRUE(Certificate::save_chain(below.chain, files.certificate).ok());
  const auto loaded = load_issuer(files, wall_now());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->chain.size(), 3U);
  EXPECT_TRUE(
      verify_chain(issue(CertificateAuthority::of(*loaded), some_site()), {below.chain.back()}, wall_now(), {}).ok());
}

TEST(Issuer, WhatMembersWouldNotAcceptIsRefusedInWordsBeforeAnythingIsIssued) {
  const Issuer root = make_test_root("root");
  const auto why = [](const Issuer& issuer) {
    const Status checked = check_issuer(issuer, wall_now(), "a.pem");
    EXPECT_FALSE(checked.ok());
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_THAT(why(make_test_authority(root, {.basic_constraints = "critical,CA:FALSE"})), HasSubstr("CA:TRUE"));
  EXPECT_THAT(why(make_test_authority(root, {.key_usage = "critical,digitalSignature"})), HasSubstr("keyCertSign"));
  EXPECT_THAT(why(make_test_authority(root, {.validity = std::chrono::seconds(-60)})),
              HasSubstr("a.pem: it has expired"));
  EXPECT_THAT(why(make_test_authority(make_test_root("tight", "critical,CA:TRUE,pathlen:0"))),
              HasSubstr("its root: its pathlen:0 allows fewer"));
  const Issuer good = make_test_authority(root);
  EXPECT_THAT(why({PrivateKey::generate().value(), good.chain}), HasSubstr("does not belong to the key"));
  EXPECT_THAT(why({good.key, {good.chain.front()}}), HasSubstr("the root is not self-signed"));
  EXPECT_THAT(why({good.key, {good.chain.front(), make_test_root("root").chain.front()}}),
              HasSubstr("members would not accept what it issues"));
  EXPECT_TRUE(check_issuer(good, wall_now(), "a.pem").ok());
}

TEST(Issuer, NothingOutlivesTheFirstOfItsCertificatesThatEnds) {
  const Issuer below = make_test_authority(make_test_root("root"), {.validity = std::chrono::hours(2)});
  const auto authority = CertificateAuthority::of(below);
  const auto chain = issue(authority, some_site(), std::chrono::days(90));
  EXPECT_EQ(chain.front().not_after(), below.chain.front().not_after());
}

TEST(Issuer, TheRequestForTheHolderOfTheRootIsOfTheKeyAndAsksForAnAuthority) {
  const PrivateKey key = PrivateKey::generate().value();
  const std::string pem = make_authority_request(key, "clinics").value();
  const RequestPtr request(PEM_read_bio_X509_REQ(bio_over(pem).get(), nullptr, nullptr, nullptr));
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(X509_REQ_verify(request.get(), key.native()), 1);
  STACK_OF(X509_EXTENSION)* const wanted = X509_REQ_get_extensions(request.get());
  EXPECT_GE(X509v3_get_ext_by_NID(wanted, NID_basic_constraints, -1), 0);
  EXPECT_GE(X509v3_get_ext_by_NID(wanted, NID_key_usage, -1), 0);
  sk_X509_EXTENSION_pop_free(wanted, X509_EXTENSION_free);
  EXPECT_EQ(make_authority_request(key, "No name").error().code, Code::kInvalidArgument);
}

TEST(VerifyChain, WhatHasEndedCountsForSoLongAsItIsAllowedTo) {
  const auto authority = CertificateAuthority::create_in_memory("test", wall_now()).value();
  const auto chain = issue(authority, some_site(), std::chrono::minutes(1));
  const auto& trusted = authority.authorities();
  const WallTime end = chain.front().not_after();
  EXPECT_TRUE(verify_chain(chain, trusted, end - std::chrono::seconds(1), {}).ok());
  EXPECT_FALSE(verify_chain(chain, trusted, end, {}).ok());
  const Ended a_day{std::chrono::hours(24)};
  EXPECT_TRUE(verify_chain(chain, trusted, end + std::chrono::hours(23), a_day).ok());
  EXPECT_FALSE(verify_chain(chain, trusted, end + std::chrono::hours(25), a_day).ok());
  EXPECT_THAT(verify_chain(chain, trusted, end + std::chrono::hours(25), a_day).error().message,
              HasSubstr("site 7 (hospital-a) is refused: certificate has expired"));
  // Not even so, from somebody who is not trusted.
  const auto foreign = CertificateAuthority::create_in_memory("test", wall_now()).value();
  EXPECT_FALSE(verify_chain(chain, foreign.authorities(), end + std::chrono::hours(1), a_day).ok());
  EXPECT_FALSE(verify_chain({}, trusted, wall_now(), a_day).ok());
}

TEST(VerifyChain, AnAuthorityIsNoMember) {
  const auto authority = CertificateAuthority::create_in_memory("test", wall_now()).value();
  EXPECT_FALSE(verify_chain(authority.chain(), authority.authorities(), wall_now(), {}).ok());
}

TEST(Credentials, OneListOfAuthoritiesIsReplacedByAnotherSoThatEachMomentLoads) {
  const TemporaryFolder folder;
  const auto old = CertificateAuthority::create_in_memory("test", wall_now()).value();
  const auto next = CertificateAuthority::create_in_memory("test", wall_now()).value();
  const auto made = make_key_and_csr().value();
  const Grant grant{some_site(), std::chrono::hours(1)};
  const auto by = [&](const CertificateAuthority& authority) {
    return authority.issue_chain(made.csr_der.span(), grant, wall_now()).value();
  };
  ASSERT_TRUE(save_credentials({made.key, by(old), {old.certificate()}, 3, 1}, folder.path()).ok());

  // As if the process were killed before the certificate is written.
  std::filesystem::create_directories(folder.path() + "/cert.pem.tmp/in-the-way");
  const Credentials after{made.key, by(next), {next.certificate()}, 3, 2};
  ASSERT_FALSE(save_credentials(after, folder.path()).ok());
  const auto between = load_credentials(folder.path());
  ASSERT_TRUE(between.ok()) << between.error().message;
  EXPECT_EQ(between->authorities.size(), 2U);
  EXPECT_EQ(between->trust, 1U);

  std::filesystem::remove_all(folder.path() + "/cert.pem.tmp");
  ASSERT_TRUE(save_credentials(after, folder.path()).ok());
  const auto loaded = load_credentials(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->authorities.size(), 1U);
  EXPECT_EQ(loaded->trust, 2U);
  EXPECT_EQ(loaded->enrolled_before, 3U);
}

}  // namespace
}  // namespace fluvial::identity
