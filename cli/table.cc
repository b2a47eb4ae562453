#include "cli/table.h"

#include <algorithm>

#include "cli/format.h"
#include "core/base/check.h"

namespace fluvial::cli {

void Table::add(std::vector<std::string> cells) {
  FLUVIAL_CHECK(cells.size() == columns_.size(), "a row has as many cells as the table has columns");
  rows_.push_back(std::move(cells));
}

std::string Table::render(const Terminal& terminal) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  const std::vector<bool> is_shown = shown(widths, terminal);
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!is_shown[i]) continue;
      if (!text.empty()) text += "  ";
      const std::string gap(widths[i] - display_width(cells[i]), ' ');
      text += columns_[i].align == Align::kRight ? gap + cells[i] : cells[i] + gap;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string out = terminal.dim(line(titles)) + "\n";
  for (const auto& row : rows_) out += line(row) + "\n";
  return out;
}

std::vector<bool> Table::shown(const std::vector<std::size_t>& widths, const Terminal& terminal) const {
  std::vector<bool> shown(columns_.size(), true);
  std::size_t width = 0;
  for (const std::size_t one : widths) width += one + 2;
  while (terminal.is_interactive() && width > terminal.columns() + 2) {
    std::size_t next = columns_.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (shown[i] && columns_[i].rank > 0 && (next == columns_.size() || columns_[i].rank > columns_[next].rank)) {
        next = i;
      }
    }
    if (next == columns_.size()) break;
    shown[next] = false;
    width -= widths[next] + 2;
  }
  return shown;
}

}  // namespace fluvial::cli
