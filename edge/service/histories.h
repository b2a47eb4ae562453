// The history of the federation that the site is in: what it shows when it comes for a lease, and a lease of another.
#pragma once

#include <functional>
#include <optional>

#include "core/net/signal.h"
#include "core/round/history.h"
#include "edge/logic/site_machine.h"
#include "edge/service/site_context.h"

namespace fluvial::edge {

class Histories {
 public:
  struct Events {
    std::function<void()> begins;                          // then, once nothing is being written, enter()
    std::function<Result<std::optional<Pending>>()> load;  // what the store holds now
    std::function<void(std::optional<Pending>, const round::Common&)> entered;
  };

  Histories(SiteContext& site, Events events);

  Status open();
  void stop() { entered_.notify_all(); }

  net::Awaitable<Result<round::Standing>> standing();
  net::Awaitable<Status> granted(round::Lineage lineage, Epoch lease);      // for another history: once it is entered
  round::HistoryId current() const { return round::current_of(lineage_); }  // that the store is in
  void enter() { site_.spawn("enter history", write()); }

 private:
  struct Entering {
    round::Lineage lineage;
    Epoch lease;
  };
  net::Awaitable<void> write();
  Result<std::optional<Pending>> put_aside(const std::vector<store::PutAside>& asides);

  SiteContext& site_;
  Events events_;
  round::Lineage lineage_;  // of the history that the store is in
  Epoch heard_;             // the greatest epoch
  std::optional<Entering> entering_;
  net::AsyncSignal entered_;
};

}  // namespace fluvial::edge
