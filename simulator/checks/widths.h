// From one width of a float to the other, in the loops that recompute what the service computed.
#pragma once

namespace fluvial::simulator {

inline double wide(float value) { return static_cast<double>(value); }
inline float narrow(double value) { return static_cast<float>(value); }

}  // namespace fluvial::simulator
