# What makes a fault in what ships harder to use: here the linking, in every build. tests/deploy/hardening_test.py looks at
# what came out.
#
# Executables that are loaded anywhere, whatever the compiler's own default is; read-only relocations, all of them resolved
# at the start; no stack that can be executed.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
add_link_options("$<$<NOT:$<LINK_LANGUAGE:CUDA>>:-Wl,-z,relro,-z,now,-z,noexecstack>")
