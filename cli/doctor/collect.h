// Gathers what is so (facts.h). Blocking; each function bounds its own time but for a disk or a driver that hangs,
// which the checkup waits for no longer than its deadline. Nothing on the machine is changed: what is measured with is
// removed before the measurement begins, and a running node is asked rather than touched.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/facts.h"
#include "cli/doctor/subject.h"

namespace fluvial::cli::doctor {

// collect_machine.cc
ClockFacts collect_clock();
KernelFacts collect_kernel(const std::optional<tree::Limits>& of_node);  // none: nobody says, our own are shown
CpuFacts collect_cpu();
bool has_gpu_driver();
GpuFacts collect_gpus(const std::string& setting);

// collect_disk.cc
FolderFacts collect_folder(const std::string& path);
ModelFacts collect_models(const std::string& folder);
JournalFacts collect_journal(const std::string& path, bool held);
inline constexpr std::uint64_t kMeasuredBytes = 32 << 20;

// collect_node.cc
ProcessFacts collect_process(const Subject& subject);
CertificateFacts collect_certificates(const Subject& subject);
WorkerSocketFacts collect_worker_socket(const std::string& path);
PythonFacts collect_python();
std::string user_name(unsigned uid);

// collect_network.cc
struct Listener {
  int pid = 0;       // 0: it cannot be seen from here
  std::string name;  // of the program
};
std::optional<Listener> listener_on(std::uint16_t port);
std::optional<int> holder_of(const std::string& inode);  // of a socket: the process, where it can be seen from here
std::vector<PortFacts> collect_ports(const Subject& subject);
ParentFacts collect_parent(const Subject& subject, const ProcessFacts& process);
AdvertisedFacts collect_advertised(const Subject& subject, const ProcessFacts& process);
EnrolmentFacts collect_enrolment(const std::string& address, const std::string& pin);

// collect_way_back.cc
WayBackFacts collect_way_back(const Subject& subject);  // of a coordinator that runs

}  // namespace fluvial::cli::doctor
