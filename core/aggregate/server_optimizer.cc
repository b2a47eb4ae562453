#include "core/aggregate/server_optimizer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "kernels/vector.h"

namespace fluvial::aggregate {
namespace {

Error expected(std::string_view text, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("server optimizer \"{}\": expected {}", text, what)};
}

bool parse_number(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

Status set_option(std::string_view text, std::string_view option, ServerOptimizer* optimizer) {
  const bool has_momentum = optimizer->kind == ServerOptimizerKind::kFedAvgM;
  const std::size_t equals = option.find('=');
  const std::string_view key = option.substr(0, equals);
  double* value = key == "lr" ? &optimizer->lr : key == "momentum" && has_momentum ? &optimizer->momentum : nullptr;
  if (value == nullptr || equals == std::string_view::npos) {
    return expected(text, has_momentum ? "options lr=NUMBER and momentum=NUMBER" : "option lr=NUMBER");
  }
  if (!parse_number(option.substr(equals + 1), value)) return expected(text, fmt::format("{} to be a number", key));
  return {};
}

}  // namespace

Status ServerOptimizer::apply(std::span<const float> mean, std::span<float> state, std::span<float> model) const {
  if (mean.size() != model.size() || state.size() != state_vectors() * mean.size()) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{} means, {} values of state and {} of the model, expected {} of state for each of both",
                             mean.size(), state.size(), model.size(), state_vectors())};
  }
  switch (kind) {
    case ServerOptimizerKind::kFedAvg: kernels::apply_sgd(lr, mean, model); break;
    case ServerOptimizerKind::kFedAvgM: kernels::apply_momentum(lr, momentum, mean, state, model); break;
  }
  return {};
}

Result<ServerOptimizer> parse_server_optimizer(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  ServerOptimizer optimizer;
  if (name == "fedavgm") {
    optimizer.kind = ServerOptimizerKind::kFedAvgM;
  } else if (name != "fedavg") {
    return expected(text, "fedavg[:lr=1] or fedavgm[:lr=1,momentum=0.9]");
  }
  for (std::size_t at = colon; at != std::string_view::npos;) {
    const std::size_t comma = text.find(',', at + 1);
    const std::size_t end = comma == std::string_view::npos ? text.size() : comma;
    FLUVIAL_TRY(set_option(text, text.substr(at + 1, end - at - 1), &optimizer));
    at = comma;
  }
  if (!(optimizer.lr > 0 && std::isfinite(optimizer.lr))) return expected(text, "lr above 0");
  if (!(optimizer.momentum >= 0 && optimizer.momentum < 1)) return expected(text, "momentum from 0 to below 1");
  return optimizer;
}

std::string to_string(const ServerOptimizer& optimizer) {
  if (optimizer.kind == ServerOptimizerKind::kFedAvg) return fmt::format("fedavg:lr={}", optimizer.lr);
  return fmt::format("fedavgm:lr={},momentum={}", optimizer.lr, optimizer.momentum);
}

}  // namespace fluvial::aggregate
