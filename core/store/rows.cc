#include "core/store/rows.h"

namespace fluvial::store {

bool TokenRow::is_for(Role member_role, std::string_view member_name) const {
  if (member_role != role) return false;
  if (!name.ends_with("-*")) return member_name == name;
  return member_name.size() >= name.size() &&
         member_name.starts_with(std::string_view(name).substr(0, name.size() - 1));
}

}  // namespace fluvial::store
