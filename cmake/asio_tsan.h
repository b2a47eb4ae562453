// For the thread sanitizer, in place of <boost/asio/detail/atomic_count.hpp>: that one ends a reference count with a
// fence, which the sanitizer does not understand, so every last release of an executor would be reported as a race. The
// same counts, with acquire and release on the operation itself.
#pragma once
#define BOOST_ASIO_DETAIL_ATOMIC_COUNT_HPP

#include <atomic>

namespace boost {
namespace asio {
namespace detail {

typedef std::atomic<long> atomic_count;
inline void increment(atomic_count& a, long b) { a += b; }
inline void decrement(atomic_count& a, long b) { a -= b; }
inline void ref_count_up(atomic_count& a) { a.fetch_add(1, std::memory_order_relaxed); }
inline bool ref_count_down(atomic_count& a) { return a.fetch_sub(1, std::memory_order_acq_rel) == 1; }

}  // namespace detail
}  // namespace asio
}  // namespace boost
