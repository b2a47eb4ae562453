// What people are told of an aggregator: log lines and metrics. On the node's strand.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "aggregator/service/region_observer.h"
#include "core/telemetry/round_metrics.h"

namespace fluvial::aggregator {

class RegionReport final : public RegionObserver {
 public:
  RegionReport(telemetry::Metrics& metrics, telemetry::Logger log);

  void parent_up(const std::string& parent) override;
  void parent_down(const Error& why) override;
  void parentless(std::size_t children) override;
  void child_joined(const tree::Child& child) override;
  void members_passed_over(NodeId child, std::size_t members) override;
  void lease_not_taken(const Error& why) override;
  void history_begins(round::HistoryId history, Epoch at) override;
  void round_said(const Opening& opening) override;
  void round_opened(const Opening& opening, std::size_t participants) override;
  void site_refused(const Opening& opening, const round::Refusal& refusal) override;
  void sum_made_again(const Opening& opening, NodeId child, const Error& error) override;
  void partial_sent(RunId run, RoundId round, const SendPartial& partial, const Status& sent) override;
  void partial_refused(const v1::Receipt& receipt, const Error& error) override;
  void partial_took(Duration time) override;
  void committed(const wire::Commit& commit) override;
  void measured(std::size_t sites, std::size_t aggregators, ModelVersion model) override;

 private:
  static constexpr std::size_t kNamesMax = 100'000;
  telemetry::Logger round_log(const Opening& opening) const;
  telemetry::Field field_of(std::string_view key, NodeId node) const;

  telemetry::Logger log_;
  std::map<NodeId, std::string> names_;  // of children, gone ones too
  telemetry::RoundMetrics counts_;
  telemetry::Histogram partial_seconds_;
  telemetry::Counter partials_sent_;
  telemetry::Counter partials_failed_;
  telemetry::Counter partials_refused_;
  telemetry::Gauge sites_;
  telemetry::Gauge aggregators_;
  telemetry::Gauge model_version_;
};

}  // namespace fluvial::aggregator
