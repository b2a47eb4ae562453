// What is so on a machine, as it was found: collect.h gathers it, judge.h says what it means. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/tree/limits.h"

namespace fluvial::cli::doctor {

// The process of this node, as far as it answers.
struct ProcessFacts {
  bool answers = false;
  std::string asked;   // where: its metrics port or its admin socket
  std::string why;     // it does not
  std::string name;    // of the node
  std::string parent;  // of a member; empty: it has none just now
  std::string parent_address;
  bool connected = false;
  std::uint64_t workers = 0;                // of a site
  std::string fault;                        // of a coordinator: what of its disk fails
  std::uint16_t member_port = 0;            // of a coordinator
  std::uint16_t enrol_port = 0;             // likewise
  std::uint16_t metrics_port = 0;           // 0: none
  std::optional<tree::Limits> limits = {};  // as it says itself; none: of a version before, or it does not answer
};

struct PortFacts {
  std::string setting;  // "listen"
  std::string address;  // "0.0.0.0:7400"
  Status bound;         // whether it could be had just now: kAlreadyExists when somebody has it
  std::string holder;   // who has it: "fluvial (pid 123)"; empty: nobody, or it cannot be seen from here
};

struct ClockFacts {
  WallTime wall;
  Duration steady_step{};  // what the steady clock went on by while the machine waited for `waited`
  Duration waited{};
  bool synchronised = false;  // the kernel says that a time service steers the clock
  bool is_known = false;      // the kernel answered
};

struct KernelFacts {
  tree::Limits limits;
  bool of_node = false;                    // the limits are the node's; else those of whoever asks
  std::optional<std::uint64_t> shm_bytes;  // of /dev/shm; none: there is no such file system
  Status memfd;                            // whether sealed memory can be made
  std::optional<std::uint64_t> somaxconn;
  std::optional<std::uint64_t> overcommit;
  std::optional<std::uint64_t> cgroup_bytes;  // the smallest memory limit above this process
  std::uint64_t memory_bytes = 0;
};

struct CpuFacts {
  std::string architecture;  // "x86_64"
  std::string model;
  unsigned cores = 0;
  bool avx2 = false;
  bool avx512 = false;  // all parts of it that the kernels use
};

// A certificate folder: a member's identity/, or the coordinator's ca/.
struct CertificateFacts {
  std::string folder;
  Status loaded;             // kNotFound: not enrolled, or not founded yet
  std::optional<Role> role;  // of a member
  std::string name;
  std::string federation;
  WallTime not_before;
  WallTime not_after;
  WallTime authority_not_after;
  std::string key_file;
  std::optional<unsigned> key_mode;
  std::optional<unsigned> folder_mode;
  WallTime now;
};

struct DiskSpeed {
  double write_bytes_per_s = 0;
  double fsync_median_s = 0;
  double fsync_max_s = 0;
};

struct FolderFacts {
  std::string path;
  bool exists = false;
  bool is_folder = false;
  bool writable = false;   // by this user
  bool read_only = false;  // the file system, whoever asks
  unsigned mode = 0;
  std::string owner;        // "fluvial"
  std::string user;         // who asks
  std::string file_system;  // "ext4"
  std::uint64_t free_bytes = 0;
  std::uint64_t free_files = 0;
  Result<DiskSpeed> speed = Error{Code::kNotFound, "not measured"};
};

struct ModelFacts {
  std::uint64_t largest_bytes = 0;  // 0: there is none
  bool has_trained = false;         // beside a model lies what sites train from: a run's plan sends differences
};

struct JournalFacts {
  std::string path;
  bool exists = false;
  bool held = false;  // by a coordinator that runs
  std::uint64_t bytes = 0;
  Status checked = Error{Code::kNotFound, "not checked"};
};

struct GpuFacts {
  std::string setting;  // "auto", "none", or devices
  bool built = false;   // with CUDA
  bool driver = false;  // the kernel's module is loaded
  Result<int> count = Error{Code::kNotFound, "not asked"};
  struct Device {
    std::string name;
    std::uint64_t memory_bytes = 0;
    bool exclusive = false;
    Status usable;
  };
  std::vector<Device> devices;
  Status nccl = Error{Code::kNotFound, "not asked"};
};

// What a connection to a peer showed, made and ended as a member's, without taking its place.
struct VisitFacts {
  std::string address;
  std::string proxy;  // "host:port", where the way leads through one
  Status reached;
  std::string peer;  // "aggregator 3 (eu-agg)"
  Duration handshake{};
  Duration round_trip{};
  std::optional<Duration> wall_offset;  // the peer's wall clock minus our own
};

struct ParentFacts {
  std::optional<VisitFacts> coordinator;
  std::optional<VisitFacts> parent;      // where another node is
  std::optional<VisitFacts> advertised;  // an aggregator's own address, as its children see it
};

// A coordinator's ports from outside, as far as this machine sees them.
struct AdvertisedFacts {
  std::string members;  // address
  std::string enrolment;
  Status members_reached;
  Status enrolment_reached;
};

// The aggregators' own addresses, which they give to their children, tried from the coordinator's machine.
struct WayBackFacts {
  struct Aggregator {
    std::string name;
    bool connected = false;  // to its parent
    std::string expected;    // who should answer: "aggregator 3 (eu-agg)"
    bool tried = false;      // there was time
    VisitFacts visit;        // without a round trip: who answers is all that is asked
  };
  Status listed;             // whether the coordinator said which there are
  bool in_rollover = false;  // members trust another authority, too, which this machine's ca.pem does not hold
  std::vector<Aggregator> aggregators;
};

// A port of enrolment, before this machine is anybody: what a token names.
struct EnrolmentFacts {
  std::string address;
  Status reached;
};

struct WorkerSocketFacts {
  std::string path;
  bool exists = false;
  bool is_socket = false;
  bool listening = false;
  unsigned mode = 0;
  std::string owner;
  std::string user;
};

struct PythonFacts {
  std::string interpreter;  // empty: there is none in PATH
  std::string version;      // of the package; empty: it is not there
  std::string ours;
};

}  // namespace fluvial::cli::doctor
