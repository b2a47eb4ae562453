# The compiler, its flags, and whether CUDA is here.

get_filename_component(FLUVIAL_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13 AND NOT FLUVIAL_KERNELS_ALONE)
  message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION} miscompiles C++20 coroutines; use clang++-19 (./dev build does)")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

set(FLUVIAL_SANITIZE "" CACHE STRING "sanitizers to build with, such as address,undefined or thread")
# Off where sources change one at a time (the debug preset) or are looked at so (./dev lint), and in kernels/.
option(FLUVIAL_UNITY "compile the sources of a room together: a fresh build takes less than half the time" ON)
set(FLUVIAL_COVERAGE "" CACHE STRING "rooms that count which of their lines run, such as tree;transfer")

# Everything of ours compiles with these; third-party headers are system headers and exempt.
add_library(fluvial_flags INTERFACE)
target_compile_options(fluvial_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast
  -Woverloaded-virtual -Wimplicit-fallthrough
  $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-designated-field-initializers> -Wno-missing-field-initializers
  -ffp-contract=off)  # a fused multiply-add would change bits between machines
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(fluvial_flags INTERFACE -Wno-maybe-uninitialized)  # g++ 12's own header of intrinsics
else()
  target_compile_options(fluvial_flags INTERFACE -Werror)
endif()
target_include_directories(fluvial_flags INTERFACE ${FLUVIAL_ROOT})
if(FLUVIAL_SANITIZE)
  add_compile_options(-fsanitize=${FLUVIAL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${FLUVIAL_SANITIZE})
endif()

include(FluvialHardening)

find_program(FLUVIAL_CCACHE ccache)
if(FLUVIAL_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FLUVIAL_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${FLUVIAL_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${FLUVIAL_CCACHE})
endif()
find_program(FLUVIAL_MOLD mold)
if(FLUVIAL_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# What is shipped; the presets take one, since each costs as much again (kernels/cuda/README.md).
set(FLUVIAL_CUDA_ARCHITECTURES "75;80;90;100" CACHE STRING "GPU architectures to compile for, or native")
option(FLUVIAL_CUDA "build the CUDA backend when nvcc is found" ON)
set(FLUVIAL_HAVE_CUDA OFF)
if(FLUVIAL_CUDA AND NOT FLUVIAL_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${FLUVIAL_CUDA_ARCHITECTURES})
    set(CMAKE_CUDA_HOST_COMPILER g++)
    enable_language(CUDA)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know it
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA_STANDARD 20)
    set(FLUVIAL_HAVE_CUDA ON)
  endif()
endif()
message(STATUS "Fluvial ${PROJECT_VERSION}: CUDA backend ${FLUVIAL_HAVE_CUDA}")
