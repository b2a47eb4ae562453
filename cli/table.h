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
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> cells);  // as many as columns
  bool empty() const { return rows_.empty(); }
  // Every line ends in a newline; no line has blanks at its end. The titles are dim where colours are.
  std::string render(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fluvial::cli
