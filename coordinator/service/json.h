// The admin API's answers as JSON (docs/operations/admin-api.md).
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <string>

#include "coordinator/logic/run_machine.h"
#include "core/store/rows.h"

namespace fluvial::coordinator {

using NameOf = std::function<std::string(NodeId)>;

boost::json::object vector_object(const round::VectorRef& vector);
std::string round_json(const store::CommitRow& row, const NameOf& name_of);
std::string shares_json(const std::map<SiteId, store::SiteShare>& shares, const NameOf& name_of);
std::string committed_line(const store::CommitRow& row, const NameOf& name_of);
std::string evaluated_line(RunId run, RoundId round, const round::Metrics& evaluation);
std::string opened_line(const round::AttemptRecord& attempt);
std::string state_line(RunId run, RunStatus status, const std::string& reason);
std::string error_line(const Error& error);
std::string utc(WallTime time);  // 2026-01-31T12:00:00.123Z

}  // namespace fluvial::coordinator
