# fluvial_room(NAME [DEPS target...] [TEST_DEPS target...])
#
# One static library from the .cc files of the current folder, named fluvial_NAME, and one test executable from its
# *_test.cc files. A folder without sources of its own becomes an interface library. Benchmarks (*_bench.cc) and
# fuzzers (*_fuzz.cc) are built under tests/.
include(GoogleTest)

function(fluvial_room name)
  cmake_parse_arguments(ARG "" "" "DEPS;TEST_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  if(sources)
    add_library(fluvial_${name} STATIC ${sources})
    target_link_libraries(fluvial_${name} PUBLIC ${ARG_DEPS} PRIVATE fluvial_flags)
    target_include_directories(fluvial_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  else()
    add_library(fluvial_${name} INTERFACE)
    target_link_libraries(fluvial_${name} INTERFACE ${ARG_DEPS})
    target_include_directories(fluvial_${name} INTERFACE ${CMAKE_SOURCE_DIR})
  endif()
  if(tests)
    fluvial_test(${name}_test SOURCES ${tests} DEPS fluvial_${name} ${ARG_TEST_DEPS})
  endif()
endfunction()

# fluvial_test(NAME SOURCES file... DEPS target... [TIMEOUT seconds]): a GoogleTest executable; every test is one CTest.
function(fluvial_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main fluvial_flags)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} TEST_PREFIX ${name}: PROPERTIES TIMEOUT ${ARG_TIMEOUT} DISCOVERY_TIMEOUT 60)
endfunction()
