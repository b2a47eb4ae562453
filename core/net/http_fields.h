// Inside: what Beast reads, as this room's requests and answers have it.
#pragma once

#include <algorithm>
#include <boost/beast/http/fields.hpp>
#include <cctype>
#include <map>
#include <string>

namespace fluvial::net {

// As HttpRequest::headers.
inline std::map<std::string, std::string> headers_of(const boost::beast::http::fields& fields) {
  std::map<std::string, std::string> headers;
  for (const auto& field : fields) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto [at, is_first] = headers.try_emplace(name);
    if (!is_first) at->second += ", ";
    at->second.append(field.value().data(), field.value().size());
  }
  return headers;
}

}  // namespace fluvial::net
