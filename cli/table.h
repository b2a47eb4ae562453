// Aligned columns for people; scripts use --json.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"

namespace fluvial::cli {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    int rank = 0;  // on a terminal that is too narrow the columns with the highest rank go first; 0 stays
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> cells);  // as many as columns
  bool empty() const { return rows_.empty(); }
  // Every line ends in a newline; no line has blanks at its end. The titles are dim where colours are. A pipe gets
  // every column.
  std::string render(const Terminal& terminal) const;

 private:
  std::vector<bool> shown(const std::vector<std::size_t>& widths, const Terminal& terminal) const;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fluvial::cli
