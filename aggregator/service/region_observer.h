// What an aggregator's service says of what it does, each when it is so: for people (region_report.h), and for whoever
// holds it to what it promises. An observer decides nothing.
#pragma once

#include <string>
#include <vector>

#include "aggregator/logic/region_machine.h"
#include "core/tree/hub.h"
#include "core/wire/record_mapping.h"

namespace fluvial::aggregator {

// On the node's strand.
class RegionObserver {
 public:
  virtual ~RegionObserver() = default;

  virtual void parent_up(const std::string& parent) = 0;
  virtual void parent_down(const Error& why) = 0;
  virtual void parentless(std::size_t children) = 0;  // for too long: they go
  virtual void child_joined(const tree::Child& child) = 0;
  virtual void members_passed_over(NodeId child, std::size_t members) = 0;  // that it may not speak for
  virtual void lease_not_taken(const Error& why) = 0;
  virtual void history_begins(round::HistoryId history, Epoch at) = 0;  // another one: a coordinator was restored

  virtual void round_said(const Opening& opening) = 0;  // by the parent
  virtual void round_opened(const Opening& opening, std::size_t participants) = 0;
  virtual void site_refused(const Opening& opening, const round::Refusal& refusal) = 0;
  virtual void sum_made_again(const Opening& opening, NodeId child, const Error& error) = 0;
  virtual void partial_sent(RunId run, RoundId round, const SendPartial& partial, const Status& sent) = 0;
  virtual void partial_refused(const v1::Receipt& receipt, const Error& error) = 0;
  virtual void partial_took(Duration time) = 0;  // to the parent's receipt
  virtual void committed(const wire::Commit& commit) = 0;

  // When somebody scrapes: who is connected below, and the model that is here whole (0: none).
  virtual void measured(std::size_t sites, std::size_t aggregators, ModelVersion model) = 0;
};

}  // namespace fluvial::aggregator
