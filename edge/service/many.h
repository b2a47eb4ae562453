// Many sites in one process: one set of threads, one strand, one HTTP port and one log for all of them. No site has a
// thread of its own, and one that ends takes no other with it.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/tree/process.h"
#include "edge/service/site.h"

namespace fluvial::edge {

// The sites of `process`, which outlives it. On the process' strand, but for add(), and failure() once it has run.
class Sites {
 public:
  explicit Sites(tree::Process& process);

  // What becomes of a site, to be told by it.
  struct Told {
    std::function<void(const std::string& name)> is;  // its name, once it is known; before, that of the folder is used
    std::function<void(WallTime)> certificate_ends;
    std::function<void(bool)> set_ready;
    std::function<void()> request_stop;
  };
  using Open = std::function<Result<std::unique_ptr<HostedSite>>(Told told)>;
  // Before the process runs. A site that cannot be opened is left out, and the log says why. `folder`: its folder's
  // name.
  void add(const std::string& folder, const Open& open);
  void stop();

  std::size_t size() const { return entries_.size(); }
  std::size_t failed() const;  // could not be opened, or ended of themselves
  Status failure() const;      // of the first of them, and how many there are
  std::string status_json() const;

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<HostedSite> site;  // from its opening on, however it ends: what it has begun refers to it
    std::optional<Error> failure;
    std::optional<WallTime> certificate_ends;
    bool connected = false;
    bool stopped = false;
  };
  Told told_by(Entry& entry);
  void ended(Entry& entry);
  void stop(Entry& entry);
  bool all_connected() const;
  void measure();

  tree::Process& process_;
  std::deque<Entry> entries_;  // they stay where they are
  telemetry::Measuring measuring_;
};

}  // namespace fluvial::edge
