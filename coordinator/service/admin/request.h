// A request to the admin API as its handlers see it, and how what a person or a program wrote there is read.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/service/admin/access.h"
#include "core/base/result.h"
#include "core/net/http.h"
#include "core/store/audit_entry.h"

namespace fluvial::coordinator::admin {

struct Call {
  net::HttpRequest request;
  std::vector<std::string> names;  // what stands in the path for the route's {...}, in order
  Caller caller = {};

  store::AuditEntry entry(store::AuditKind kind) const;  // of what this call does, by whoever asks

  // kInvalidArgument: that is no number.
  Result<std::uint64_t> number(const std::string& key, std::uint64_t otherwise) const;
  std::string text(const std::string& key) const;  // of the query; empty when it is not there
};

Result<std::uint64_t> to_number(const std::string& key, const std::string& text);

// The members of a body. kInvalidArgument names the one that is not what it should be; one that is not there, or null,
// is `otherwise`.
Result<boost::json::object> parse_object(const std::string& body);
Result<std::string> text_of(const boost::json::object& object, const char* key, const char* otherwise);
Result<std::uint64_t> number_of(const boost::json::object& object, const char* key, std::uint64_t otherwise);
Result<bool> truth_of(const boost::json::object& object, const char* key, bool otherwise);

}  // namespace fluvial::coordinator::admin
