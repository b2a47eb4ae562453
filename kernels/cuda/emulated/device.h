// For tests: the CUDA backend, its kernels and its host code, on the CPU.
#pragma once

#include <cstdint>

namespace fluvial::kernels {

// From here on there are devices of DeviceKind::kEmulated, as many as this, up to 16. False, and there are none, where
// the emulator does not run (emulator.h).
bool use_emulated_device(int count = 1);
// From here on, until false, whatever is done on them fails: as CUDA does in a process in which a device has failed.
void fail_emulated_devices(bool failing);
// From here on, until false, whoever copies to or from one waits; and until somebody does.
void pause_emulated_copies(bool paused);
void wait_for_paused_copy();
// When what is put into a stream runs. CUDA promises no more than that it does before somebody who waits for it goes
// on: late and mixed show what forgets to wait. A result read too early, memory written over that a copy has yet to
// read, a stream that does not wait for another give other bytes; and a kernel that touches memory of another device
// stops the test. Not to be changed while anything is under way.
enum class EmulatedWork : std::uint8_t {
  kAtOnce,
  kLate,   // when somebody waits for it
  kMixed,  // then, or by chance before; always the same chance
};
void emulate_work(EmulatedWork when);
// The order in which blocks and threads run between barriers: what a kernel computes must not depend on it.
void emulate_in_descending_order(bool descending);

}  // namespace fluvial::kernels
