// A table of recorded digests: what is run, and what came of it. README.md says when an entry may change.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/toml_file.h"

namespace fluvial::digests {

// SHA-256 in hex. All but `model` are cut to their first 16 digits: an accident does not meet 64 bits twice.
struct Digests {
  std::string model;                 // of the last round
  std::vector<std::string> models;   // of each round
  std::vector<std::string> sums;     // likewise, of the integer sum; empty where none is recorded
  std::vector<std::string> updates;  // likewise, of what the first site sent, encoded; empty as above
  bool operator==(const Digests&) const = default;
};
std::string cut(const std::string& digest);

struct Entry {
  std::string name;
  std::vector<config::TomlEntry> settings;  // what is run, in the order of the file
  Digests digests;
  std::string why;  // it is what it is

  std::uint64_t number(const std::string& key) const;  // 0 when it is not there
  // Those whose keys begin with `prefix`, without it.
  std::vector<config::TomlEntry> settings_below(const std::string& prefix) const;
};
std::string setting_to_toml(const config::TomlEntry& setting);  // `key = value`, a line

class Table {
 public:
  // kInvalidArgument names file and line.
  static Result<Table> load(const std::string& path);
  const std::vector<Entry>& entries() const { return entries_; }
  // In place of an entry's digests, and why they are these.
  void record(const std::string& name, const Digests& digests, const std::string& why);
  Status save() const;

 private:
  std::string path_;
  std::string head_;  // the comment that the file begins with
  std::vector<Entry> entries_;
};

// Runs every entry of the table. One that differs from what is recorded is a failure of the test, which names `where`
// it was run. With FLUVIAL_DIGESTS_WHY set, and if `records`, what differs is printed and written into the table
// instead.
void check_table(const std::string& path, const std::string& where, bool records,
                 const std::function<Result<Digests>(const Entry&)>& run);

}  // namespace fluvial::digests
