# sluice_options: what every target of the tree is compiled with. sluice_library(): a static library on top of it.

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(SLUICE_CCACHE ccache)
mark_as_advanced(SLUICE_CCACHE)
if(SLUICE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SLUICE_CCACHE}")
endif()

include(CheckLinkerFlag)
foreach(linker IN ITEMS mold lld)
  check_linker_flag(CXX "-fuse-ld=${linker}" SLUICE_HAS_${linker})
  if(SLUICE_HAS_${linker})
    add_link_options("-fuse-ld=${linker}")
    break()
  endif()
endforeach()

add_library(sluice_options INTERFACE)
target_compile_features(sluice_options INTERFACE cxx_std_20)
target_include_directories(sluice_options INTERFACE "${PROJECT_SOURCE_DIR}")
# No contraction: where a product and a sum fuse is written in the kernels, not left to the optimiser, so that
# compilers agree on the roundings.
target_compile_options(sluice_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about the standard library's own string concatenation (GCC bug 105651).
  target_compile_options(sluice_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(SLUICE_WERROR)
  target_compile_options(sluice_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

if(SLUICE_SANITIZE)
  add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
  # One instruction set: the others differ in width alone, and each takes a minute of building.
  target_compile_definitions(sluice_options INTERFACE HWY_COMPILE_ONLY_STATIC=1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The sanitizers' own code misleads this warning, in the standard library's headers too.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()

# sluice_library(name source...): a static library of the tree.
function(sluice_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC sluice_options)
  # From CMake 3.31 on several of these would be compiled as one, too; their helpers share names.
  list(FILTER ARGN INCLUDE REGEX "[.]cu$")
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
