// What a parent remembers of the open round beside its gather: the submissions that were complete here and are known to
// be their sites' own, to find a site that contradicts itself; and transfers that were cut off in the middle, so that
// their senders may go on. Blocks on nothing.
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
  // Forgets any other round and pass; no effect when this one is open.
  void open(RunId run, RoundId round, std::uint32_t pass = 0);
  // A later round of the run is open: transfers that were cut off stay while what they bring may enter it, at most
  // `staleness_max` rounds after its own. Otherwise as open().
  void go_over(RunId run, RoundId round, std::uint32_t staleness_max);
  void close();  // forgets everything

  // ---- one submission, one content ----
  // kStale: a higher incarnation of this site, or a higher submission of the same incarnation, was complete here.
  Status admit(const UpdateHead& head) const;
  // kConflict, with both contents: the same submission was complete here with another digest. None: it was not, or is
  // not known.
  std::optional<round::Refusal> compare(RunId run, RoundId round, const round::Contribution& said) const;
  std::vector<round::Refusal> conflicts(const PartialHead& head) const;  // compare() of each contributor
  // A whole arrival, each of whose contributions is known to be its site's own, is remembered. What an aggregator is
  // brought in a partial it cannot know: a child of its could else make a site contradict what it never said.
  void complete(const StagedArrival& arrival);

  // ---- transfers that were cut off ----
  // Keeps a transfer that was cut off, if it is of the open round and has at least one chunk.
  void keep(NodeId child, Incoming incoming);
  std::optional<wire::Received> received(NodeId child) const;
  // Takes the transfer that the child's new head continues. Any other transfer kept for the child is dropped.
  std::optional<Incoming> take(const UpdateHead& head);
  std::optional<Incoming> take(const PartialHead& head);

 private:
  template <typename Head>
  std::optional<Incoming> take_of(NodeId child, const Head& head);
  bool is_open(RunId run, RoundId round) const { return open_ && run == run_ && round <= round_ && round >= since_; }

  bool open_ = false;
  RunId run_;
  RoundId since_;  // the first of those that went over up to this one; where none did the round itself
  RoundId round_;
  std::uint32_t pass_ = 0;                          // a site's submissions of two passes have two numbers
  std::map<SiteId, round::Contribution> complete_;  // the newest of each site
  std::map<NodeId, Incoming> kept_;
};

}  // namespace fluvial::transfer
