#include "coordinator/service/admin/watches.h"

namespace fluvial::coordinator::admin {

Result<std::shared_ptr<void>> Watches::begin(const std::string& who) {
  for (auto& [caller, places] : places_) {
    std::erase_if(places, [](const std::weak_ptr<void>& place) { return place.expired(); });
  }
  std::erase_if(places_, [](const auto& known) { return known.second.empty(); });
  std::vector<std::weak_ptr<void>>& own = places_[who];
  if (own.size() >= kOfOneMax) {
    return Error{Code::kResourceExhausted,
                 "you watch " + std::to_string(own.size()) + " times already: end another watch first"};
  }
  std::shared_ptr<void> place = std::make_shared<char>();
  own.push_back(place);
  return place;
}

}  // namespace fluvial::coordinator::admin
