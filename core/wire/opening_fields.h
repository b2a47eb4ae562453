// What a RoundOpen and the coordinator's statement about it both say of an attempt. For this room alone.
#pragma once

#include <cstdint>

#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::wire {

// `Message`: v1::RoundOpen or v1::OpeningStatement.
template <typename Message>
void set_opening_fields(const Opening& opening, Message& message) {
  message.set_run(opening.run.value());
  message.set_round(opening.round.value());
  message.set_attempt(opening.attempt.value());
  message.set_epoch(opening.epoch.value());
  *message.mutable_base() = to_proto(opening.base);
  *message.mutable_plan() = to_proto(opening.plan);
  message.mutable_plan()->clear_down();  // each transfer says it of itself; an older node would lose it on the way
  clear_late(message.mutable_plan());    // the opening itself says it, likewise
  message.mutable_plan()->clear_optimizer_averaged();  // the coordinator's alone, and likewise
  if (opening.late) *message.mutable_late() = to_proto(*opening.late);
  if (opening.pass) *message.mutable_pass() = to_proto(*opening.pass);
  message.set_scale_bits(static_cast<std::uint32_t>(opening.scale_bits));
  message.set_value_count(opening.value_count);
  message.set_integer_count(opening.integer_count);
  for (const RunId run : opening.continues) message.add_continues(run.value());
}

}  // namespace fluvial::wire
