#include "kernels/cpu/loops_includes.h"

#define FLUVIAL_LOOPS_NAMESPACE baseline
#include "kernels/cpu/loops_impl.h"
