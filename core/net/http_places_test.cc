#include "core/net/http_places.h"

#include <gtest/gtest.h>

namespace fluvial::net {
namespace {

constexpr AddressKey kGreedy{false, 66}, kOther{false, 2}, kThird{true, 2};

std::optional<TimePoint> since(int second) { return TimePoint(std::chrono::seconds(second)); }

TEST(HttpPlaces, WhoHasMostGivesOneUpWhateverItDoes) {
  std::vector<HttpPlace> places(5, {kGreedy, std::nullopt});
  EXPECT_EQ(who_gives_way(places, kOther), 4u) << "the newest";
  places[2].still_since = since(9);
  places[1].still_since = since(10);
  EXPECT_EQ(who_gives_way(places, kOther), 2u) << "but one that is still first";
}

TEST(HttpPlaces, AnothersPlaceIsSafeFromWhoHasMore) {
  std::vector<HttpPlace> places(5, {kGreedy, std::nullopt});
  places[0] = {kOther, since(1)};
  EXPECT_EQ(who_gives_way(places, kGreedy), std::nullopt);
  places[3].still_since = since(2);
  EXPECT_EQ(who_gives_way(places, kGreedy), 3u) << "its own";
  EXPECT_EQ(who_gives_way(places, kThird), 3u) << "of who has most, though another is still for longer";
}

TEST(HttpPlaces, AmongEqualsWhoIsStillGoesAndWhoIsAnsweredStays) {
  std::vector<HttpPlace> places = {{kOther, std::nullopt}, {kThird, since(5)}, {kGreedy, since(4)}};
  EXPECT_EQ(who_gives_way(places, AddressKey{false, 9}), 2u);
  for (HttpPlace& place : places) place.still_since.reset();
  EXPECT_EQ(who_gives_way(places, AddressKey{false, 9}), std::nullopt);
  EXPECT_EQ(who_gives_way(places, kOther), std::nullopt);
}

TEST(HttpPlaces, ItsOwnGoesWhereAllAreItsOwn) {
  const std::vector<HttpPlace> places = {{kOther, since(5)}, {kOther, since(4)}, {kOther, std::nullopt}};
  EXPECT_EQ(who_gives_way(places, kOther), 1u);
}

}  // namespace
}  // namespace fluvial::net
