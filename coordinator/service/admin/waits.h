// What the active run waits for, of whom and since when; and what is wrong. On the node's strand.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/problems.h"
#include "coordinator/service/admin/context.h"

namespace fluvial::coordinator::admin {

struct Wait {
  std::string node;  // empty: nobody in particular
  std::string what;  // is waited for
  Absence absence;
};
// Of the active run; empty when there is none, or when it is over.
std::vector<Wait> waits_of(const Context& admin);

// The most entries of each list. One more then says how many there are besides.
inline constexpr std::size_t kToldMax = 100;
boost::json::array waits_json(const Context& admin);
// Where the transfers of the moment stand, by tier of the tree.
boost::json::array tiers_json(const Context& admin);
boost::json::value open_json(const Context& admin, const RunMachine& machine);  // the open round; null: none is
// The plan's mode, and of windows the goal, into what is said of the open round.
void add_mode(const RunMachine& machine, boost::json::object& open);
// Which pass of how many is open, into what is said of the open round; nothing where a round has one.
void add_pass(const RunMachine& machine, boost::json::object& open);
// The event of the watchers: where the active run stands, and what it waits for.
std::string waits_line(const Context& admin, const RunMachine& machine);
boost::json::array problems_json(const Context& admin);
Situation facts_of(const Context& admin);

boost::json::value progress_json(const std::optional<Activity>& activity);  // null: no bytes are known of it
boost::json::value doing_json(const std::optional<Activity>& activity);     // null: it does not report
double seconds_until(TimePoint then, TimePoint now);                        // 0: it is over
boost::json::value time_json(const std::optional<WallTime>& time);          // null: none

}  // namespace fluvial::coordinator::admin
