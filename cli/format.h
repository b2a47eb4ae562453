// Figures as people read them. Pure text.
#pragma once

#include <cstdint>
#include <string>

namespace fluvial::cli {

std::string format_count(std::uint64_t count);    // "1,797"
std::string format_bytes(double bytes);           // "512 B", "1.4 MiB"
std::string format_seconds(double seconds);       // "8.2 ms", "1.25 s", "3 min 20 s", "2 h 05 min"
std::string format_percent(double part);          // 0.9733 -> "97.3 %"
std::string format_metric(double value);          // four significant digits, "-" for a value that is not finite
std::string format_time(const std::string& utc);  // "2026-01-31T12:00:00.123Z" -> "2026-01-31 12:00:00 UTC"
// "03:12 UTC", or "2026-01-31" when `today` ("2026-02-01...") is another day.
std::string format_since(const std::string& utc, const std::string& today);
std::string utc_now();                                                  // "2026-01-31T12:00:00Z": not pure
std::string shorten(const std::string& text, std::size_t columns_max);  // "aggregat..", cut at a character
std::size_t display_width(const std::string& text);                     // columns: UTF-8 characters, colours left out

}  // namespace fluvial::cli
