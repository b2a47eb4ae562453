#include "edge/service/common_models.h"

#include <algorithm>
#include <utility>

namespace fluvial::edge {

CommonModels::Flights::iterator CommonModels::flight_of(Site site) {
  return std::ranges::find_if(flights_, [site](const Flight& flight) { return flight.wishes.contains(site); });
}

std::optional<HeldModel> CommonModels::copy_of(const Which& which) const {
  for (const Copy& copy : copies_) {
    if (copy.which != which) continue;
    if (auto bytes = copy.bytes.lock()) return HeldModel{which.ref, copy.schema, std::move(bytes)};
  }
  return std::nullopt;
}

void CommonModels::want(Site site, const Which& which, Wish wish) {
  const auto before = flight_of(site);
  if (before != flights_.end() && before->which == which) {
    if (before->fetcher == site) before->wishes.at(site).fetch();
    return;
  }
  forget(site);
  if (std::optional<HeldModel> held = copy_of(which)) return wish.here(std::move(*held));
  auto flight = std::ranges::find(flights_, which, &Flight::which);
  if (flight == flights_.end()) flight = flights_.insert(flights_.end(), Flight{which, {}, nullptr});
  flight->wishes.emplace(site, std::move(wish));
  if (flight->fetcher == nullptr) take_turn(*flight, nullptr);
}

std::optional<round::ModelRef> CommonModels::flowing(Site site) const {
  const auto flight = std::ranges::find_if(flights_, [site](const Flight& one) { return one.wishes.contains(site); });
  if (flight == flights_.end() || flight->fetcher == nullptr || flight->fetcher == site) return std::nullopt;
  const Wish& fetcher = flight->wishes.at(flight->fetcher);
  const std::optional<round::ModelRef> flows = fetcher.flowing ? fetcher.flowing() : std::nullopt;
  return flows == flight->which.ref ? flows : std::nullopt;
}

void CommonModels::take_turn(Flight& flight, Site but_not) {
  for (const auto& [site, wish] : flight.wishes) {
    if (site == but_not || !wish.can_fetch()) continue;
    flight.fetcher = site;
    return wish.fetch();
  }
}

void CommonModels::forget(Site site) {
  const auto flight = flight_of(site);
  if (flight == flights_.end()) return;
  flight->wishes.erase(site);
  if (flight->wishes.empty()) {
    flights_.erase(flight);
  } else if (flight->fetcher == site) {
    flight->fetcher = nullptr;
    take_turn(*flight, nullptr);
  }
}

void CommonModels::cannot_fetch(Site site) {
  const auto flight = flight_of(site);
  if (flight == flights_.end() || flight->fetcher != site) return;
  flight->fetcher = nullptr;
  take_turn(*flight, site);
}

void CommonModels::can_fetch(Site site, NodeId parent) {
  const auto flight = flight_of(site);
  if (flight == flights_.end()) return;
  if (flight->which.parent == parent) {
    if (flight->fetcher == nullptr) take_turn(*flight, nullptr);
    return;
  }
  const Which which{flight->which.history, flight->which.ref, parent};
  Wish wish = std::move(flight->wishes.at(site));
  forget(site);
  want(site, which, std::move(wish));
}

HeldModel CommonModels::fetched(Site site, const Which& which, HeldModel model) {
  if (std::optional<HeldModel> held = copy_of(which)) model = std::move(*held);
  std::erase_if(copies_, [&](const Copy& copy) { return copy.bytes.expired() || copy.which == which; });
  copies_.push_back({which, model.schema, model.bytes});
  const auto flight = std::ranges::find(flights_, which, &Flight::which);
  if (flight_of(site) != flight) forget(site);  // it has another parent since
  if (flight == flights_.end()) return model;
  const std::map<Site, Wish> wishes = std::move(flight->wishes);
  flights_.erase(flight);
  for (const auto& [other, wish] : wishes) {
    if (other != site) wish.here(model);
  }
  return model;
}

}  // namespace fluvial::edge
