// For tests: the CUDA backend, its kernels and its host code, on the CPU.
#pragma once

namespace fluvial::kernels {

// From here on there are devices of DeviceKind::kEmulated, as many as this, up to 16. False, and there are none, where
// the emulator does not run (emulator.h).
bool use_emulated_device(int count = 1);
// From here on, until false, whatever is done on them fails: as CUDA does in a process in which a device has failed.
void fail_emulated_devices(bool failing);
// From here on, until false, whoever copies to or from one waits; and until somebody does.
void pause_emulated_copies(bool paused);
void wait_for_paused_copy();
// The order in which blocks and threads run between barriers: what a kernel computes must not depend on it.
void emulate_in_descending_order(bool descending);

}  // namespace fluvial::kernels
