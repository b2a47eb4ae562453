// For tests: the CUDA backend, its kernels and its host code, on the CPU.
#pragma once

#include <cstdint>

namespace fluvial::kernels {

// From here on there are devices of DeviceKind::kEmulated, as many as this, up to 16. False, and there are none, where
// the emulator does not run (emulator.h).
bool use_emulated_device(int count = 1);
// From here on, until false, all their operations fail, as in a process in which a CUDA device has failed.
void fail_emulated_devices(bool failing);
// From here on, until false, copies to and from a device wait. wait_for_paused_copy() returns once there is one.
void pause_emulated_copies(bool paused);
void wait_for_paused_copy();
// When the work in a stream runs. CUDA only promises that it runs before a waiting caller goes on: late and mixed
// reveal code that forgets to wait. A result read too early, memory overwritten before a copy has read it, or a stream
// that does not wait for another give other bytes; a kernel that touches memory of another device stops the test. Not
// to be changed while anything is under way.
enum class EmulatedWork : std::uint8_t {
  kAtOnce,
  kLate,   // when somebody waits for it
  kMixed,  // then, or by chance before; always the same chance
};
void emulate_work(EmulatedWork when);
// The order in which blocks and threads run between barriers: what a kernel computes must not depend on it.
void emulate_in_descending_order(bool descending);

}  // namespace fluvial::kernels
