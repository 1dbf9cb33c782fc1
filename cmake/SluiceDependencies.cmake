# Finds what Debian 12 and Ubuntu 24.04 package, and gives each one name whatever the version calls it:
# sluice_boost, sluice_yaml, sluice_pcre2, sluice_utf8proc, sluice_hwy; the others keep their own.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(TBB REQUIRED)
find_package(Eigen3 3.3 REQUIRED NO_MODULE)

# Boost.DLL is headers only when it uses std::filesystem.
find_package(Boost 1.81 REQUIRED)
add_library(sluice_boost INTERFACE)
target_link_libraries(sluice_boost INTERFACE Boost::headers ${CMAKE_DL_LIBS})
target_compile_definitions(sluice_boost INTERFACE BOOST_DLL_USE_STD_FS)

find_package(yaml-cpp 0.7 REQUIRED)
add_library(sluice_yaml INTERFACE)
if(TARGET yaml-cpp::yaml-cpp)
  target_link_libraries(sluice_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(sluice_yaml INTERFACE yaml-cpp)
endif()

function(sluice_pkg_config name module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
  add_library(${name} INTERFACE)
  target_link_libraries(${name} INTERFACE PkgConfig::${name})
endfunction()
sluice_pkg_config(sluice_pcre2 "libpcre2-8>=10.30")
target_compile_definitions(sluice_pcre2 INTERFACE PCRE2_CODE_UNIT_WIDTH=8)
sluice_pkg_config(sluice_utf8proc "libutf8proc>=2.2")
sluice_pkg_config(sluice_hwy "libhwy>=1.0")

if(SLUICE_TESTS)
  find_package(Catch2 REQUIRED)
  if(Catch2_VERSION VERSION_LESS 2.13)
    message(FATAL_ERROR "Catch2 ${Catch2_VERSION} in ${Catch2_DIR} is too old: 2.13 or 3 is needed")
  endif()
endif()
