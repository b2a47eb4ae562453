#include "core/round/renewal.h"

#include <algorithm>

namespace fluvial::round {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr int kFromPart = 2;    // of the life, from which on it is renewed
constexpr int kSpreadPart = 8;  // of the life, over which a fleet spreads
constexpr int kFirstPart = 64;  // of the life: the first wait after a failure at most
constexpr int kLongestPart = 16;
constexpr int kRoomPart = 4;  // of what is left
constexpr Duration kFirst = std::chrono::seconds(30);
constexpr Duration kLongest = std::chrono::hours(1);
constexpr Duration kLongestEnded = std::chrono::minutes(5);
constexpr Duration kWaitLeast = milliseconds(50);
constexpr unsigned kDoublingsMax = 16;

Duration part_of(Duration whole, double part) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(whole.count()) * part));
}

}  // namespace

WallTime renew_at(const CertificateLife& life, const RenewalTerms& terms, WallTime now, double chance) {
  if (terms.trusts_others) return WallTime::min();
  if (terms.validity > Duration(0) && life.ends - now > kMuchLonger * terms.validity) return WallTime::min();
  const milliseconds whole = std::max(life.ends - life.issued, milliseconds(0));
  return life.issued + whole / kFromPart + duration_cast<milliseconds>(part_of(whole, chance / kSpreadPart));
}

Duration renewal_retry(const CertificateLife& life, WallTime now, unsigned failures, double chance) {
  const Duration whole = std::max<Duration>(life.ends - life.issued, kWaitLeast);
  const Duration left = life.ends - now;
  Duration longest = std::min(kLongest, whole / kLongestPart);
  longest = left > Duration(0) ? std::min(longest, left / kRoomPart) : std::min(longest, kLongestEnded);
  Duration wait = std::min(kFirst, whole / kFirstPart);
  for (unsigned i = 1; i < std::min(failures, kDoublingsMax) && wait < longest; ++i) wait *= 2;
  return std::max(kWaitLeast, part_of(std::min(wait, longest), 0.5 + chance / 2));
}

bool outlives_certificate(WallTime ends, WallTime now, Duration past_max) { return now - ends > past_max; }

}  // namespace fluvial::round
