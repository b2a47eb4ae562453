// The public scale of codec ring (docs/formats/codecs-ring.md): what a sum of its values needs. A value is a whole
// number of steps of 2^-ring_fraction_bits, so a sum at that scale holds weight times code: nothing is rounded, and it
// is as narrow as code and weights are.
#pragma once

#include "kernels/codec.h"

namespace fluvial::kernels {

// Of a spec of kind kRing that parse_codec() or make_codec() accepted. The most bits with which every value up to
// spec.max is sent unclipped; negative where a step is more than 1.
int ring_fraction_bits(const CodecSpec& spec);

// The greatest magnitude that is sent: at least spec.max, and below twice of it.
double ring_value_max(const CodecSpec& spec);

}  // namespace fluvial::kernels
