// From what was found (facts.h) to what a person reads. Pure: each finding has a test with the facts in and the words
// out.
#pragma once

#include <optional>

#include "cli/doctor/facts.h"
#include "cli/doctor/finding.h"

namespace fluvial::cli::doctor {

// What a node is for, as far as its findings depend on it.
struct Node {
  std::optional<Role> role;  // none: a bare machine
  std::uint64_t sessions_max = 0;
  std::optional<std::uint64_t> staging_bytes_max = {};  // none: by the model
  std::uint64_t model_bytes = 0;                        // 0: not known
  bool has_gpus = false;                                // a driver is loaded, and the node may use it
  bool sends_differences = false;                       // a run's models go down so: `down` of its plan
  bool has_children() const { return role == Role::kCoordinator || role == Role::kAggregator; }
  bool has_workers() const { return role == Role::kSite; }
};

// judge_machine.cc
Findings judge(const ClockFacts& facts);
Findings judge(const KernelFacts& facts, const Node& node);
Findings judge(const CpuFacts& facts);
Findings judge(const GpuFacts& facts, const Node& node);

// judge_node.cc
Findings judge(const ProcessFacts& facts, const Node& node);
Findings judge(const CertificateFacts& facts, const Node& node);
Findings judge(const FolderFacts& facts, const Node& node);
Findings judge(const JournalFacts& facts);
Findings judge(const WorkerSocketFacts& facts, bool process_answers);
Findings judge(const PythonFacts& facts);

// judge_network.cc
Findings judge(const std::vector<PortFacts>& ports, const ProcessFacts& process);
Findings judge(const ParentFacts& facts, const ProcessFacts& process);
Findings judge(const AdvertisedFacts& facts);
Findings judge(const WayBackFacts& facts);
Findings judge(const EnrolmentFacts& facts);

}  // namespace fluvial::cli::doctor
