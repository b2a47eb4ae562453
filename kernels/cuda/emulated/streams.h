// The work in the streams of emulated devices, and when it runs (device.h). Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/cuda/emulated/device.h"

namespace fluvial::kernels::emulated {

class Queue;

void set_when(EmulatedWork when);  // not while anything is under way
bool runs_at_once();

std::shared_ptr<Queue> make_queue(int device_index);
int device_of(const Queue& queue);
// `work` holds its data by value.
void put(Queue& queue, std::function<void()> work);

// Behind all that is in the queue now; nothing when there is no queue.
struct Point {
  std::shared_ptr<Queue> queue;
  std::uint64_t count = 0;
};
Point end_of(const std::shared_ptr<Queue>& queue);
void put_wait(Queue& queue, Point point);  // later work in the queue runs after the point

// Run, on this thread, what must run before the point.
void finish(const Point& point);
void finish_all();

}  // namespace fluvial::kernels::emulated
