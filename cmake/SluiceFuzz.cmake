# sluice_add_fuzzer(name source... [LIBS library...])
#
# Builds the libFuzzer executable NAME. scripts/fuzz.sh runs each on the seeds in tests/fuzz/corpus/NAME.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "SLUICE_FUZZ needs clang (libFuzzer); the compiler is ${CMAKE_CXX_COMPILER_ID}")
endif()
# Coverage feedback in every file of the tree, the fuzzer's main only in the targets.
foreach(library IN ITEMS sluice_core sluice_models sluice_harness)
  target_compile_options(${library} PRIVATE -fsanitize=fuzzer-no-link)
endforeach()

add_custom_target(sluice_fuzzers)
function(sluice_add_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBS")
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE sluice_options ${arg_LIBS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(sluice_fuzzers ${name})
endfunction()
