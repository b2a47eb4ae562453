// The submission without an outcome: sent, asked about, and resolved when its outcome is told.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "core/tree/uplink.h"
#include "edge/logic/site_machine.h"
#include "edge/service/site_context.h"
#include "edge/service/upload.h"

namespace fluvial::edge {

class Submission {
 public:
  struct Events {
    std::function<void(const Pending&)> resolved;  // its outcome is on disk
    std::function<void()> sending;                 // begins or ends
  };
  // Sends no faster than `bytes_per_s`; 0: as fast as it goes.
  Submission(SiteContext& site, tree::Uplink& uplink, std::uint64_t bytes_per_s, Events events);

  Result<std::optional<Pending>> load();  // what the store holds
  const store::PendingInfo& hold(store::PendingUpdate update);
  Pending hold_pass(store::PendingUpdate update);  // a later pass of it
  // Of the pass that was sent last: an answer to another one is of a pass that is over.
  bool is_about_last(std::uint32_t pass) const { return pass == last_pass_; }

  // While it is encoded and made durable: what is there of it, but for its trailer and what the parent has just said it
  // `received`. Then send(), and it goes on; or drop_early().
  void send_early(std::shared_ptr<const Feed> feed, const Offer& offer, const std::optional<Received>& received);
  void fed() { upload_.fed(); }
  void drop_early() { upload_.drop_early(); }
  void send(const Send& effect);
  void stop_sending() { upload_.stop(); }
  void refused(RunId run, RoundId round) { upload_.refused(run, round); }
  void turned_away(RunId run, RoundId round) { upload_.turned_away(run, round); }
  void answered(RunId run, RoundId round);  // by a receipt, whatever it says
  void ask(const Ask& effect);
  void resolve(const Resolve& effect);

  std::optional<Upload::Progress> sending() const { return upload_.progress(); }
  // Encoded payload handed to sessions so far, resends included.
  std::uint64_t payload_bytes() const { return upload_.payload_bytes(); }

 private:
  Upload::Events upload_events();
  Result<std::string> signature_of(const store::PendingInfo& info) const;  // thread safe
  bool is_taken(const store::PendingInfo& info) const;                     // by the parent
  bool is_with_parent(const Offer& offer, const store::PendingInfo& info) const;
  void decline(const Offer& offer);
  void on_sent(const UploadItem& item, double seconds);
  static void forget_memory(std::shared_ptr<const store::PendingUpdate>& held);
  net::Awaitable<void> write(Pending pending, Outcome outcome);

  SiteContext& site_;
  tree::Uplink& uplink_;
  Events events_;
  Upload upload_;
  std::shared_ptr<const store::PendingUpdate> pending_;
  std::shared_ptr<const store::PendingUpdate> pass_;  // the last later pass of it; null: there is none
  std::uint32_t last_pass_ = 0;
  std::map<std::uint32_t, std::uint64_t> sent_;  // by pass: the submission that was last
  struct Unanswered {                            // all of it has gone, and no receipt has come yet
    RunId run;
    RoundId into;
    std::uint64_t submission = 0;
    Epoch lease;
    std::shared_ptr<net::Session> session;
  };
  std::optional<Unanswered> unanswered_;
};

}  // namespace fluvial::edge
