# sluice_add_policy(name source... [OUTPUT_DIRECTORY dir] [NO_INSTALL])
#
# Builds the offload policy NAME as NAME.so, a module that links nothing but sluice::sdk. It lands in
# ${CMAKE_BINARY_DIR} unless told otherwise, and is installed into ${SLUICE_POLICY_INSTALL_DIR}, where a Sluice with
# the same prefix finds it. The target is policy_NAME.
function(sluice_add_policy name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_INSTALL" "OUTPUT_DIRECTORY" "")
  if(NOT arg_OUTPUT_DIRECTORY)
    set(arg_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
  endif()
  add_library(policy_${name} MODULE ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(policy_${name} PRIVATE sluice::sdk)
  set_target_properties(policy_${name} PROPERTIES
    OUTPUT_NAME "${name}"
    PREFIX ""
    SUFFIX ".so"
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY "${arg_OUTPUT_DIRECTORY}")
  if(NOT arg_NO_INSTALL)
    install(TARGETS policy_${name} LIBRARY DESTINATION "${SLUICE_POLICY_INSTALL_DIR}")
  endif()
endfunction()
