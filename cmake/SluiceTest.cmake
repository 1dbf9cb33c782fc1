# sluice_add_test(name SOURCES source... [LIBS library...] [LABEL fast|threads|slow|gpu] [TIMEOUT seconds]
#                 [DEPENDS target...])
#
# Builds the Catch2 executable NAME and registers each of its TEST_CASEs with ctest as "NAME:case". LABEL is
# `fast` unless told otherwise; `threads` is as fast and has several threads at work. Sanitizers are slow to build and to
# run: with them only these two are built, and with ThreadSanitizer, which finds nothing on one thread, `threads` alone.
# A case that prints "SKIPPED: why" counts as skipped; those labelled `gpu` say so by themselves where there is no GPU.
# The code sees SLUICE_TEST_DATA, the directory tests/data, SLUICE_TEST_PLUGIN_DIR, where the policies were built, and
# SLUICE_TEST_BUILD_DIR, the build directory with the executable `sluice`.

set(SLUICE_BUILT_LABELS fast threads slow gpu)
if(SLUICE_SANITIZE STREQUAL "thread")
  set(SLUICE_BUILT_LABELS threads)
elseif(SLUICE_SANITIZE)
  set(SLUICE_BUILT_LABELS fast threads)
endif()

if(Catch2_VERSION VERSION_LESS 3)
  add_library(sluice_catch STATIC "${PROJECT_SOURCE_DIR}/tests/catch_main.cpp")
  target_link_libraries(sluice_catch PUBLIC Catch2::Catch2)
  target_compile_features(sluice_catch PUBLIC cxx_std_20)
  target_include_directories(sluice_catch PRIVATE "${PROJECT_SOURCE_DIR}")
  if(SLUICE_SANITIZE)
    target_compile_options(sluice_catch PRIVATE -O0 -fno-sanitize=all)  # half a minute less
  endif()
else()
  add_library(sluice_catch INTERFACE)
  target_link_libraries(sluice_catch INTERFACE Catch2::Catch2WithMain)
endif()
include(Catch)

# A main() of its own, so that nothing of Catch2's is linked twice.
add_library(sluice_gpu_main OBJECT EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/gpu_main.cpp")
target_link_libraries(sluice_gpu_main PRIVATE sluice_catch sluice_core)

function(sluice_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "SOURCES;LIBS;DEPENDS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "sluice_add_test(${name}): SOURCES are needed; not understood: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL fast)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABEL IN_LIST SLUICE_BUILT_LABELS)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_catch sluice_options ${arg_LIBS})
  if(arg_LABEL STREQUAL "gpu")
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:sluice_gpu_main>)
  endif()
  target_compile_definitions(${name} PRIVATE
    SLUICE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    SLUICE_TEST_PLUGIN_DIR="${PROJECT_BINARY_DIR}/strategies"
    SLUICE_TEST_BUILD_DIR="${PROJECT_BINARY_DIR}")
  add_dependencies(${name} sluice_policies ${arg_DEPENDS})
  catch_discover_tests(${name}
    TEST_PREFIX "${name}:"
    PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} SKIP_REGULAR_EXPRESSION "SKIPPED: ")
endfunction()

# sluice_add_check(name command...): a test that is a command, labelled `check`.
function(sluice_add_check name)
  add_test(NAME check:${name} COMMAND ${ARGN})
  set_tests_properties(check:${name} PROPERTIES LABELS check TIMEOUT 600 SKIP_REGULAR_EXPRESSION "SKIPPED: ")
endfunction()
