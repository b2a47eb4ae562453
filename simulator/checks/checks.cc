#include "simulator/checks/checks.h"

#include "core/base/format.h"

namespace fluvial::simulator {

void Checks::incarnation_began(HostId host, Incarnation incarnation) {
  const auto before = incarnations_.find(host);
  if (before != incarnations_.end() && incarnation <= before->second) {
    report_("incarnations_grow", format_text("host {}: incarnation {} after {}", std::uint64_t{host.value()},
                                             incarnation.value(), before->second.value()));
  }
  incarnations_[host] = incarnation;
}

void Checks::accused(SiteId site, bool wicked, const std::string& why) {
  if (!wicked) report_("quarantine", format_text("site {} is honest: {}", std::uint64_t{site.value()}, why));
}

void Checks::bounds(HostId host, std::uint64_t staged_bytes, std::uint64_t staged_bytes_max, std::size_t staged_count) {
  const std::uint64_t who = host.value();
  if (staged_bytes > staged_bytes_max) {
    report_("bounded_memory", format_text("host {} holds {} staged bytes of {}", who, staged_bytes, staged_bytes_max));
  }
  if (staged_max_ != 0 && staged_count > staged_max_) {
    report_("bounded_memory", format_text("host {} holds {} arrivals, and {} sites take part", who,
                                          std::uint64_t{staged_count}, std::uint64_t{staged_max_}));
  }
}

void Checks::nothing_staged(HostId host, std::uint64_t, std::size_t staged_count) {
  if (staged_count == 0) return;
  report_("bounded_memory", format_text("host {} holds {} arrivals of a round that is over",
                                        std::uint64_t{host.value()}, std::uint64_t{staged_count}));
}

void Checks::run_ended(RunId run) { rounds_.run_ended(run); }

}  // namespace fluvial::simulator
