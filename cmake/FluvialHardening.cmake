# What makes a fault in what ships harder to use: the linking in every build, the compiling in the released one.
# tests/deploy/hardening_test.py looks at what came out.
#
# Executables that are loaded anywhere, whatever the compiler's own default is; read-only relocations, all of them resolved
# at the start; no stack that can be executed.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
add_link_options("$<$<NOT:$<LINK_LANGUAGE:CUDA>>:-Wl,-z,relro,-z,now,-z,noexecstack>")

# And the compiling of what is released: a stack that was overwritten ends the process before it returns, copies are
# checked against the object they go to, and an indirect jump lands where the compiler meant one to. Sanitizers find more
# than these, and do not go with them.
include(CheckCXXCompilerFlag)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT FLUVIAL_SANITIZE)
  set(FLUVIAL_HARDENING -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  foreach(flag -fcf-protection=full -mbranch-protection=standard)  # of x86-64, of arm64
    string(MAKE_C_IDENTIFIER "FLUVIAL_TAKES${flag}" takes)
    check_cxx_compiler_flag("-Werror ${flag}" ${takes})
    if(${takes})
      list(APPEND FLUVIAL_HARDENING ${flag})
    endif()
  endforeach()
  add_compile_options("$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${FLUVIAL_HARDENING}>")
endif()
