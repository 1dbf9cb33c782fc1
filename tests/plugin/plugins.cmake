# Plugins for tests, in <build>/test_plugins: those that work (by_hand, chaos, throws), and one for each reason to
# refuse a library.
add_custom_target(sluice_test_plugins)

# sluice_test_plugin(name source [definition...])
function(sluice_test_plugin name source)
  sluice_add_policy(${name} ${CMAKE_CURRENT_SOURCE_DIR}/plugin/plugins/${source}
    OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/test_plugins" NO_INSTALL)
  target_link_libraries(policy_${name} PRIVATE $<BUILD_INTERFACE:sluice_options>)
  target_compile_definitions(policy_${name} PRIVATE "TEST_PLUGIN_NAME=\"${name}\"" ${ARGN})
  add_dependencies(sluice_test_plugins policy_${name})
endfunction()

sluice_test_plugin(chaos chaos.cpp)
sluice_test_plugin(throws throws.cpp)
sluice_test_plugin(moody moody.cpp)
sluice_test_plugin(no_descriptor no_descriptor.cpp)
sluice_test_plugin(unresolved unresolved.cpp)

sluice_test_plugin(by_hand by_hand.cpp)
sluice_test_plugin(other_abi by_hand.cpp BY_HAND_ABI=7)
sluice_test_plugin(other_bytes by_hand.cpp BY_HAND_BYTES=8)
sluice_test_plugin(other_compiler by_hand.cpp "BY_HAND_SIGNATURE=\"tcc 0.9, nolib\"")
sluice_test_plugin(other_name by_hand.cpp "BY_HAND_NAME=\"somebody\"")
sluice_test_plugin(resident by_hand.cpp)
sluice_test_plugin(other_identity by_hand.cpp BY_HAND_IDENTITY=kNoIdentity)
sluice_test_plugin(two_descriptors by_hand.cpp BY_HAND_SECOND)
sluice_test_plugin(not_exported by_hand.cpp BY_HAND_SYMBOL=another_symbol)
sluice_test_plugin(no_factory by_hand.cpp BY_HAND_CREATE=nullptr)
sluice_test_plugin(returns_nothing by_hand.cpp BY_HAND_CREATE=make_nothing)
sluice_test_plugin(bad_table by_hand.cpp BY_HAND_DEFAULT=3)
