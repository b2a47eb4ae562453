#include "cli/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fluvial::cli {
namespace {

constexpr double kMicroseconds = 1e6;

std::int64_t microseconds(double seconds) { return std::llround(seconds * kMicroseconds); }

struct Slice {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  json::object details;
};

class Events {
 public:
  explicit Events(std::int64_t zero) : zero_(zero) {}

  int add_process(const std::string& name) {
    const int process = ++processes_;
    threads_ = 0;
    describe(process, 0, "process_name", {{"name", name}});
    describe(process, 0, "process_sort_index", {{"sort_index", process}});
    return process;
  }
  // On one thread or, where they overlap, several.
  void add_slices(int process, const std::string& name, std::vector<Slice> slices) {
    std::ranges::sort(slices, {}, [](const Slice& slice) { return std::pair(slice.begin, slice.end); });
    std::vector<std::int64_t> free_at;  // of each thread
    const int first = threads_ + 1;
    for (Slice& slice : slices) {
      auto lane = std::ranges::find_if(free_at, [&](std::int64_t at) { return at <= slice.begin; });
      if (lane == free_at.end()) {
        lane = free_at.insert(lane, 0);
        ++threads_;
        const auto number = free_at.size();
        describe(process, threads_, "thread_name", {{"name", number == 1 ? name : fmt::format("{} {}", name, number)}});
        describe(process, threads_, "thread_sort_index", {{"sort_index", threads_}});
      }
      *lane = slice.end;
      const auto thread = first + (lane - free_at.begin());
      events_.push_back(json::object{{"name", std::move(slice.name)},
                                     {"cat", "fluvial"},
                                     {"ph", "X"},
                                     {"ts", slice.begin - zero_},
                                     {"dur", slice.end - slice.begin},
                                     {"pid", process},
                                     {"tid", thread},
                                     {"args", std::move(slice.details)}});
    }
  }
  json::array take() { return std::move(events_); }

 private:
  void describe(int process, int thread, const char* what, json::object arguments) {
    events_.push_back(
        json::object{{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", std::move(arguments)}});
  }

  std::int64_t zero_;
  int processes_ = 0;
  int threads_ = 0;  // of the last process
  json::array events_;
};

struct TraceNode {
  std::string name;
  std::string role;
  std::vector<std::pair<std::string, std::vector<Slice>>> kinds;  // in the order in which they began

  std::vector<Slice>& slices(const std::string& kind) {
    const auto found = std::ranges::find(kinds, kind, [](const auto& entry) { return entry.first; });
    return found != kinds.end() ? found->second : kinds.emplace_back(kind, std::vector<Slice>()).second;
  }
};

int tier_of(const std::string& role) { return role == "coordinator" ? 0 : role == "aggregator" ? 1 : 2; }

Slice slice_of(const json::value& span) {
  Slice slice{text_member(span, "name"),
              microseconds(number_member(span, "start_s", 0)),
              microseconds(number_member(span, "end_s", 0)),
              {}};
  slice.end = std::max(slice.begin, slice.end);
  if (const std::string of = text_member(span, "of"); !of.empty()) {
    slice.details["of"] = of;
    slice.name += " " + of;
  }
  return slice;
}

std::vector<TraceNode> nodes_of(const json::value& timeline) {
  std::vector<json::value> spans(array_member(timeline, "spans").begin(), array_member(timeline, "spans").end());
  std::ranges::sort(spans, {}, [](const json::value& span) {
    return std::pair(number_member(span, "start_s", 0), number_member(span, "end_s", 0));
  });
  std::vector<TraceNode> nodes;
  for (const json::value& span : spans) {
    const std::string name = text_member(span, "node");
    auto node = std::ranges::find(nodes, name, &TraceNode::name);
    if (node == nodes.end()) node = nodes.insert(node, {name, text_member(span, "role"), {}});
    node->slices(text_member(span, "name")).push_back(slice_of(span));
  }
  std::ranges::sort(nodes, {}, [](const TraceNode& node) { return std::pair(tier_of(node.role), node.name); });
  return nodes;
}

std::vector<Slice> critical_slices(const json::value& timeline) {
  std::vector<Slice> slices;
  double at = 0;
  for (const json::value& step : array_member(timeline, "critical")) {
    const double until = at + number_member(step, "seconds", 0);
    slices.push_back({fmt::format("{} {}", text_member(step, "name"), text_member(step, "node")),
                      microseconds(at),
                      microseconds(until),
                      {}});
    at = until;
  }
  return slices;
}

}  // namespace

json::object chrome_trace(const json::value& timeline) {
  const std::vector<TraceNode> nodes = nodes_of(timeline);
  std::int64_t zero = 0;
  for (const TraceNode& node : nodes) {
    for (const auto& [kind, slices] : node.kinds) {
      for (const Slice& slice : slices) zero = std::min(zero, slice.begin);
    }
  }
  Events events(zero);
  const std::uint64_t round = count_member(timeline, "round");
  const int path = events.add_process(fmt::format("round {}", round));
  const std::int64_t length = microseconds(number_member(timeline, "seconds", 0));
  events.add_slices(path, "round", {{fmt::format("round {}", round), 0, length, {}}});
  events.add_slices(path, "critical path", critical_slices(timeline));
  for (const TraceNode& node : nodes) {
    const int process = events.add_process(node.name);
    for (const auto& [kind, slices] : node.kinds) events.add_slices(process, kind, slices);
  }
  return {{"traceEvents", events.take()},
          {"displayTimeUnit", "ms"},
          {"otherData", json::object{{"run", count_member(timeline, "run")},
                                     {"round", round},
                                     {"opened_at", text_member(timeline, "opened_at")},
                                     {"words", text_member(timeline, "words")}}}};
}

}  // namespace fluvial::cli
