// NCCL, loaded by name. The few functions that are called are declared here; a test compares them with nccl.h where it
// is found. Internal to kernels/; defined in cuda/.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "kernels/device_group.h"

namespace fluvial::kernels {

struct NcclComm;  // its own

struct NcclFunctions {
  static constexpr int kSuccess = 0;
  static constexpr int kFloat = 7;
  static constexpr int kSum = 0;

  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  int (*comm_init_all)(NcclComm** comms, int count, const int* devices) = nullptr;
  int (*comm_abort)(NcclComm* comm) = nullptr;
  int (*comm_get_async_error)(NcclComm* comm, int* error) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*reduce)(const void* from, void* to, std::size_t count, int type, int operation, int root, NcclComm* comm,
                void* stream) = nullptr;
};

// kUnavailable, with the reason. It stays loaded.
Result<NcclFunctions> load_nccl(const std::string& library);

// kUnavailable, with the reason, when NCCL cannot be loaded or does not work with these devices.
Result<std::unique_ptr<GroupTransport>> make_nccl(const std::string& library, std::span<const Device> devices);

}  // namespace fluvial::kernels
