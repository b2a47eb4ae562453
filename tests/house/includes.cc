#include "tests/house/includes.h"

#include <algorithm>
#include <array>
#include <optional>

namespace fluvial::house {
namespace {

const std::vector<std::string_view> kService = {"core/base",      "core/digest",   "kernels",       "core/round",
                                                "core/aggregate", "proto",         "core/wire",     "core/store",
                                                "core/telemetry", "core/config",   "core/identity", "core/net",
                                                "core/local",     "core/transfer", "core/tree"};

std::vector<std::string_view> service_of(std::vector<std::string_view> own) {
  own.insert(own.end(), kService.begin(), kService.end());
  return own;
}

const std::vector<std::string_view> kLogic = {"core/base", "kernels", "core/round", "core/aggregate"};

// From the ground floor up.
const std::vector<Room> kRooms = {
    {"core/base", {}},  // has the one real clock; the standard library alone
    {"core/digest", {"core/base"}},

    // The arithmetic. The host API is the folder itself; the folders inside are its own.
    {"kernels/ops", {}, {}, true},
    {"kernels/reference", {"core/base"}, {}, true},
    {"kernels/cpu", {"core/base", "kernels/ops"}, {}, true},
    {"kernels", {"core/base", "kernels/ops", "kernels/cpu"}, {"kernels/reference"}, true},
    {"kernels/codecs", {"core/base", "kernels/ops", "kernels/cpu", "kernels"}, {"kernels/reference"}, true},
    {"kernels/cuda", {"core/base", "kernels/ops", "kernels"}},

    // What a round is, and what is done with contributions.
    {"core/round", {"core/base"}, {}, true},
    {"core/aggregate", {"core/base", "core/round", "kernels"}, {"kernels/reference"}, true},

    // What decides.
    {"coordinator/logic", kLogic, {}, true},
    {"aggregator/logic", kLogic, {}, true},
    {"edge/logic", kLogic, {}, true},

    // Wires, disks, people.
    {"proto", {}},
    {"core/wire", {"core/base", "core/round", "proto"}},
    {"core/store", {"core/base", "core/digest", "core/round"}},
    {"core/telemetry", {"core/base"}},
    {"core/config", {"core/base", "core/round"}},
    {"core/identity", {"core/base", "core/digest"}},
    {"core/net", {"core/base", "core/identity", "core/wire", "proto"}},
    {"core/local", {"core/base", "core/round", "core/wire", "proto"}},

    // What crosses an edge of the tree: checked, staged, summed, cut for a child.
    {"core/transfer",
     {"core/base", "core/digest", "kernels", "core/round", "core/aggregate", "proto", "core/wire", "core/store"},
     {},
     true},
    {"coordinator/model",
     {"core/base", "core/digest", "kernels", "core/round", "core/aggregate", "core/store", "core/transfer"},
     {"kernels/reference"},
     true},

    // The two ends of an edge of the tree, for every role.
    {"core/tree",
     {"core/base", "core/digest", "kernels", "core/round", "core/aggregate", "proto", "core/wire", "core/store",
      "core/telemetry", "core/config", "core/identity", "core/net", "core/transfer"}},

    // How a site's workers become one vector.
    {"edge/reduce", {"core/base", "kernels"}, {}, true},

    // Where its GPUs do it.
    {"edge/gpu", {"core/base", "kernels"}},

    // What a site does to its update; where it is called from decides about threads.
    {"edge/update",
     {"core/base", "core/digest", "kernels", "core/round", "core/store", "edge/reduce", "edge/gpu"},
     {"core/net", "edge/logic", "kernels/cuda", "kernels/reference"},
     true},

    // The console's page, inside the executable.
    {"coordinator/console", {"core/base"}},

    // What carries decisions out. The three roles never include each other.
    {"coordinator/service", service_of({"coordinator/logic", "coordinator/model", "coordinator/console"})},
    {"aggregator/service", service_of({"aggregator/logic"})},
    {"edge/service", service_of({"edge/logic", "edge/reduce", "edge/gpu", "edge/update"}), {"kernels/cuda"}},

    // Virtual time, network and disks for what ships of all roles. Only node and roles know core/net, by its
    // interfaces.
    {"simulator/scenario", {"core/base", "core/round", "core/config"}},
    {"simulator/world", {"core/base", "core/round", "proto", "core/wire", "core/store", "simulator/scenario"}},
    {"simulator/run", {"core/base", "core/digest", "simulator/scenario", "simulator/world"}},
    {"simulator/checks",
     {"core/base", "core/round", "core/store", "kernels/reference", "simulator/scenario", "simulator/world"},
     {"kernels", "core/aggregate", "core/transfer"}},  // the oracle shares no arithmetic with what it checks
    {"simulator/node",
     {"core/base", "core/wire", "core/telemetry", "core/net", "core/tree", "simulator/scenario", "simulator/world"}},
    {"simulator/roles", {"core/base",         "core/digest",        "kernels",
                         "core/round",        "core/aggregate",     "proto",
                         "core/wire",         "core/store",         "core/net",
                         "core/tree",         "core/transfer",      "core/identity",
                         "coordinator/logic", "coordinator/model",  "coordinator/service",
                         "aggregator/logic",  "aggregator/service", "edge/logic",
                         "edge/update",       "edge/service",       "simulator/scenario",
                         "simulator/world",   "simulator/node",     "simulator/run",
                         "simulator/checks"}},
    {"simulator/study",
     {"core/base", "core/round", "simulator/scenario", "simulator/world", "simulator/run", "simulator/roles"}},

    // The front door, and what is shown to users of the libraries.
    {"cli", {"simulator/scenario", "simulator/world", "simulator/run",
             "simulator/roles",    "simulator/study", "coordinator/service",
             "aggregator/service", "edge/service",    "core/base",
             "core/digest",        "kernels",
             "kernels/reference",  // the independent loop behind `bench tree`'s "exact"
             "core/round",         "core/aggregate",  "core/wire",
             "core/store",         "core/telemetry",  "core/config",
             "core/identity",      "core/net",        "core/local",
             "core/tree"}},
    {"examples", {"core/base", "core/digest", "core/round", "core/wire", "core/store", "core/local"}},

    {"cmake", {}},  // the one source that compiles Asio
    {"tests",
     {"core/base",
      "core/digest",
      "kernels/reference",
      "kernels/cpu",  // one stands in its target.cc's place (digests/baseline_target.cc)
      "kernels/cuda",
      "kernels",
      "core/round",
      "core/aggregate",
      "coordinator/logic",
      "aggregator/logic",
      "edge/logic",
      "edge/reduce",
      "edge/gpu",
      "edge/update",
      "proto",
      "core/wire",
      "core/transfer",
      "coordinator/model",
      "core/store",
      "core/telemetry",
      "core/config",
      "core/identity",
      "core/net",
      "core/local",
      "core/tree",
      "coordinator/service",
      "aggregator/service",
      "edge/service",
      "cli",
      "examples",
      "simulator/scenario",
      "simulator/world",
      "simulator/run",
      "simulator/checks",
      "simulator/node",  // two hosts of it, for fuzzers of message sequences
      "simulator/roles"}},
};

// Libraries that stay in few rooms. A test may use what the room under test uses, and tests/ everything.
struct Library {
  std::string_view prefix;
  std::vector<std::string_view> rooms;
};

const std::vector<Library>& libraries() {
  static const std::vector<Library> all = {
      {"boost/asio",
       {"core/net", "core/local", "core/tree", "coordinator/service", "aggregator/service", "edge/service",
        "simulator/node", "simulator/roles", "cmake"}},
      {"boost/beast", {"core/net"}},
      {"openssl/", {"core/digest", "core/identity", "core/net"}},
      {"sqlite3.h", {"core/store"}},
      {"google/protobuf/", {"core/wire"}},
      {"spdlog/", {"core/telemetry"}},
      {"prometheus/", {"core/telemetry"}},
      {"toml++/", {"core/config"}},
      {"CLI/", {"core/config", "cli", "examples"}},
      {"cuda", {"kernels/cuda"}},
      {"cub/", {"kernels/cuda"}},
      {"zstd.h", {"kernels/codecs", "kernels/reference"}},
  };
  return all;
}

constexpr std::array<std::string_view, 24> kImpureHeaders = {
    "thread",   "mutex",      "shared_mutex", "condition_variable",
    "future",   "stop_token", "semaphore",    "latch",
    "barrier",  "random",     "fstream",      "filesystem",
    "iostream", "ctime",      "csignal",      "sys/",
    "netinet/", "arpa/",      "unistd.h",     "fcntl.h",
    "poll.h",   "pthread.h",  "time.h",       "boost/"};
constexpr std::array<std::string_view, 6> kImpureCalls = {"_clock::now(", "std::rand(",    "std::srand(",
                                                          "std::time(",   "random_device", "std::getenv("};

bool contains(const std::vector<std::string_view>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool stands_in(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

bool is_test(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.ends_with("_test.cc") || name.ends_with("_test_support.h") || name == "test_support.h" ||
         name == "testing.h" || name == "testing.cc" || name.starts_with("test_") || name.starts_with("fake_") ||
         stands_in(path, "tests");
}

struct Include {
  std::string_view target;
  bool is_quoted = false;
};

std::optional<Include> include_of(std::string_view line) {
  const auto skip_blanks = [&line] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  const auto take = [&line](std::string_view word) {
    if (!line.starts_with(word)) return false;
    line.remove_prefix(word.size());
    return true;
  };
  skip_blanks();
  const bool is_proto = take("import ");
  if (!is_proto) {
    if (!take("#")) return std::nullopt;
    skip_blanks();
    if (!take("include")) return std::nullopt;
  }
  skip_blanks();
  const bool is_quoted = line.starts_with('"');
  if (!is_quoted && !line.starts_with('<')) return std::nullopt;
  const std::size_t end = line.find(is_quoted ? '"' : '>', 1);
  if (end == std::string_view::npos) return std::nullopt;
  return Include{line.substr(1, end - 1), is_quoted};
}

std::string problem_of_quoted(const Room& room, bool in_test, std::string_view target) {
  if (target.find('/') == std::string_view::npos) return "includes are written from the root";
  const Room* other = room_of(target.starts_with("fluvial/v1/") ? "proto" : target);
  if (other == nullptr) return "no room is called so";
  if (other == &room || contains(room.knows, other->folder)) return "";
  if (in_test && contains(room.tests_know, other->folder)) return "";
  return std::string(room.folder) + " may not know " + std::string(other->folder);
}

std::string problem_of_library(const Room& room, bool in_test, std::string_view target) {
  for (const Library& library : libraries()) {
    if (!target.starts_with(library.prefix) || contains(library.rooms, room.folder) || room.folder == "tests") continue;
    return "<" + std::string(library.prefix) + "...> stays out of " + std::string(room.folder);
  }
  if (room.folder == "core/base" && !in_test && target.find_first_of("/.") != std::string_view::npos) {
    return "core/base knows the standard library alone";
  }
  if (!room.is_isolated || in_test) return "";
  for (const std::string_view impure : kImpureHeaders) {
    if (target == impure || (impure.ends_with('/') && target.starts_with(impure))) {
      return std::string(room.folder) + " has no thread, clock, file, socket or chance of its own";
    }
  }
  return "";
}

}  // namespace

const std::vector<Room>& rooms() { return kRooms; }

const Room* room_of(std::string_view path) {
  const Room* innermost = nullptr;
  for (const Room& room : rooms()) {
    if (!stands_in(path, room.folder)) continue;
    if (innermost == nullptr || room.folder.size() > innermost->folder.size()) innermost = &room;
  }
  return innermost;
}

std::vector<Finding> check_rooms(const std::vector<Room>& table) {
  std::vector<Finding> findings;
  std::vector<std::string_view> above;
  for (const Room& room : table) {
    for (const auto* known : {&room.knows, &room.tests_know}) {
      for (const std::string_view other : *known) {
        if (contains(above, other)) continue;
        findings.push_back({std::string(room.folder), 0, "knows " + std::string(other) + ", which is not below it"});
      }
    }
    above.push_back(room.folder);
  }
  return findings;
}

std::vector<Finding> check_includes(const TextFile& file) {
  std::vector<Finding> findings;
  const Room* room = room_of(file.path);
  if (room == nullptr) return {{file.path, 0, "stands in no room: see the table in tests/house/includes.cc"}};
  const bool in_test = is_test(file.path);
  std::size_t number = 0;
  for (const std::string_view line : lines_of(file.text)) {
    ++number;
    if (const std::optional<Include> include = include_of(line)) {
      const std::string problem = include->is_quoted ? problem_of_quoted(*room, in_test, include->target)
                                                     : problem_of_library(*room, in_test, include->target);
      if (!problem.empty()) findings.push_back({file.path, number, std::string(include->target) + ": " + problem});
    }
    if (!room->is_isolated || in_test) continue;
    const std::string_view code = line.substr(0, line.find("//"));
    for (const std::string_view call : kImpureCalls) {
      if (code.find(call) == std::string_view::npos) continue;
      findings.push_back(
          {file.path, number, std::string(call) + ": " + std::string(room->folder) + " has none of its own"});
    }
  }
  return findings;
}

}  // namespace fluvial::house
