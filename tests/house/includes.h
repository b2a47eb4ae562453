// Who may include whom.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/house/files.h"

namespace fluvial::house {

struct Room {
  std::string_view folder;
  std::vector<std::string_view> knows = {};       // besides itself; rooms that stand above it in the table
  std::vector<std::string_view> tests_know = {};  // its tests, besides
  bool is_isolated = false;  // pure or blocking: no thread, clock, file, socket or chance of its own
};

// From the ground floor up.
const std::vector<Room>& rooms();

// The innermost room that a file or folder stands in; null: in none.
const Room* room_of(std::string_view path);

// What is wrong with the table itself: a room that knows one below it or none at all.
std::vector<Finding> check_rooms(const std::vector<Room>& table);

// Every include of a source, and in isolated rooms what it calls.
std::vector<Finding> check_includes(const TextFile& file);

}  // namespace fluvial::house
