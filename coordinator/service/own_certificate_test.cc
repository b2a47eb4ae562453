// The coordinator's own certificate, renewed in the process.
#include "coordinator/service/own_certificate.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>

#include "core/identity/csr.h"
#include "core/net/deadline.h"
#include "core/tree/test_runtime.h"

namespace fluvial::coordinator {
namespace {

using std::chrono::days;
using std::chrono::hours;

constexpr std::chrono::seconds kPatience{30};

class OwnCertificateTest : public testing::Test {
 protected:
  // As it was made at that time, by this machine's clock as it is now.
  std::unique_ptr<OwnCertificate> made_at(WallTime when, std::chrono::seconds validity) {
    auto live = std::make_shared<identity::LiveAuthority>(authority_);
    identity::Grant grant{{Role::kCoordinator, NodeId(1), "coordinator"}, validity, {}, {}};
    return OwnCertificate::make(identity::PrivateKey::generate().value(), std::move(grant), std::move(live), when)
        .value();
  }
  // How often it renews until it rests.
  int renewals(OwnCertificate& own) {
    int renewed = 0;
    own.on_renewed([&] {
      ++renewed;
      net::asio::post(test_.get().strand, [&own] { own.stop(); });
    });
    return test_.run(until_stopped(own, test_.get())).ok() ? renewed : -1;
  }
  static net::Awaitable<Status> until_stopped(OwnCertificate& own, tree::Runtime& runtime) {
    co_return co_await net::with_deadline(own.run(runtime), kPatience);
  }
  static WallTime now() { return SystemClock().wall_now(); }

  tree::TestRuntime test_{Role::kCoordinator};
  std::shared_ptr<const identity::CertificateAuthority> authority_ =
      std::make_shared<const identity::CertificateAuthority>(
          identity::CertificateAuthority::create_in_memory("federation", now() - days(1)).value());
};

TEST_F(OwnCertificateTest, IsRenewedFromHalfOfItsLifeOnWithTheSameKey) {
  const auto own = made_at(now() - hours(13), hours(24));
  const auto before = own->member()->current();
  const Digest key = identity::PublicKey::of(own->key()).id();
  EXPECT_EQ(renewals(*own), 1);
  EXPECT_GT(own->ends(), now() + hours(23));
  EXPECT_NE(own->member()->current(), before);
  EXPECT_EQ(identity::PublicKey::of(own->key()).id(), key);
}

TEST_F(OwnCertificateTest, IsMadeAnewWhenTheClockWasSetBack) {
  const auto own = made_at(now() + days(30), days(90));
  EXPECT_EQ(renewals(*own), 1) << "nobody would accept it for a month";
  EXPECT_LT(own->ends(), now() + days(91));
}

}  // namespace
}  // namespace fluvial::coordinator
