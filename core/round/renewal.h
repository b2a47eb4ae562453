// When a certificate is renewed, and when an attempt is made again. Pure: time and chance are passed in.
#pragma once

#include "core/base/clock.h"

namespace fluvial::round {

// A life, or what is left of one, of this many times what is issued now is replaced at once.
inline constexpr int kMuchLonger = 2;

struct CertificateLife {
  WallTime issued;
  WallTime ends;
  bool operator==(const CertificateLife&) const = default;
};

// What the coordinator says with each lease.
struct RenewalTerms {
  Duration validity{0};        // for how long it issues certificates now; 0: it renews none
  bool trusts_others = false;  // its list of authorities is another than one's own
};

// When the member asks for the next certificate: from half of the life on, spread over the eighth of it that follows
// by `chance`, in [0, 1). At once, that is at WallTime::min(), when the coordinator trusts other authorities than
// the member does, and when what is left is more than twice what it issues now: so an old fleet moves over by itself.
WallTime renew_at(const CertificateLife& life, const RenewalTerms& terms, WallTime now, double chance);

// How long to wait after so many failures in a row (one or more). Longer with each, from half a minute to an hour,
// less for a short life; never more than a quarter of what is left of it, so that several attempts come before the end.
// After the end: five minutes at most.
Duration renewal_retry(const CertificateLife& life, WallTime now, unsigned failures, double chance);

// A session goes on for this long after the end of the certificate that its peer has shown last.
bool outlives_certificate(WallTime ends, WallTime now, Duration past_max);

}  // namespace fluvial::round
