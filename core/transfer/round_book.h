// What a parent remembers of the open round beside its gather: the submissions that were complete here, to find a site
// that contradicts itself; and transfers that were cut off in the middle, so that their senders may go on. Blocks on
// nothing.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/transfer/incoming.h"

namespace fluvial::transfer {

// One thread at a time. Holds at most one unfinished transfer for each child. Its bytes count in the staging budget
// until the transfer goes on, the child begins another, or the round is closed.
class RoundBook {
 public:
  void open(RunId run, RoundId round);  // forgets any other round; no effect when this one is open
  // The next window of the run is open: transfers that were cut off in the one before it are kept. Otherwise as open().
  void go_over(RunId run, RoundId round);
  void close();  // forgets everything

  // ---- one submission, one content ----
  // kStale: a higher incarnation of this site, or a higher submission of the same incarnation, was complete here.
  Status admit(const UpdateHead& head) const;
  // kConflict: the same submission was complete here with another digest. An unknown submission passes.
  Status compare(RunId run, RoundId round, SiteId site, Incarnation incarnation, std::uint64_t submission,
                 const Digest& digest) const;
  std::vector<round::Refusal> conflicts(const PartialHead& head) const;  // compare() of each contributor
  // Of a whole and verified arrival: compare() of each contributor, and the first error. Without one they are
  // remembered.
  Status complete(const StagedArrival& arrival);

  // ---- transfers that were cut off ----
  // Keeps a transfer that was cut off, if it is of the open round and has at least one chunk.
  void keep(NodeId child, Incoming incoming);
  std::optional<wire::Received> received(NodeId child) const;
  // Takes the transfer that the child's new head continues. Any other transfer kept for the child is dropped.
  std::optional<Incoming> take(const UpdateHead& head);
  std::optional<Incoming> take(const PartialHead& head);

 private:
  struct Complete {
    Incarnation incarnation;
    std::uint64_t submission = 0;
    Digest digest{};
  };
  template <typename Head>
  std::optional<Incoming> take_of(NodeId child, const Head& head);
  bool is_open(RunId run, RoundId round) const { return open_ && run == run_ && round <= round_ && round >= since_; }

  bool open_ = false;
  RunId run_;
  RoundId since_;  // the first of the windows up to this one; without windows the round itself
  RoundId round_;
  std::map<SiteId, Complete> complete_;  // the newest of each site
  std::map<NodeId, Incoming> kept_;
};

}  // namespace fluvial::transfer
