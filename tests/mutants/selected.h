// Which mutant is switched on. The copies of the sources that make.py writes ask at each of their places.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fluvial::mutants {

struct Mutant {
  std::uint32_t number = 0;
  std::string_view name;
  std::string_view room;  // the folder of its source
};
const std::vector<Mutant>& all();

extern std::uint32_t selected;  // 0: none; set before anything else runs
inline bool is_on(std::uint32_t number) { return selected == number; }

}  // namespace fluvial::mutants
