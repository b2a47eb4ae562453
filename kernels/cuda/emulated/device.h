// For tests: the CUDA backend, its kernels and its host code, on the CPU.
#pragma once

namespace fluvial::kernels {

// From here on DeviceKind::kEmulated is there. False, and it is not, where the emulator does not run (emulator.h).
bool use_emulated_device();
// The order in which blocks and threads run between barriers: what a kernel computes must not depend on it.
void emulate_in_descending_order(bool descending);

}  // namespace fluvial::kernels
