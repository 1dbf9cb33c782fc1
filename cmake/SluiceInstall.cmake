# What `cmake --install` lays down. The policies are installed by sluice_add_policy().
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice")

install(TARGETS sluice_sdk EXPORT SluiceTargets)
install(EXPORT SluiceTargets NAMESPACE sluice:: DESTINATION "${package_dir}")
install(DIRECTORY core/sdk/sluice DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp")
install(DIRECTORY configs/ DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice/configs")
install(DIRECTORY strategies/template DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice/strategies")
install(TARGETS sluice RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")

configure_package_config_file(cmake/SluiceConfig.cmake.in SluiceConfig.cmake
  INSTALL_DESTINATION "${package_dir}" PATH_VARS SLUICE_POLICY_INSTALL_DIR)
write_basic_package_version_file(SluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/SluiceConfig.cmake" "${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake"
              cmake/SluiceAddPolicy.cmake
        DESTINATION "${package_dir}")

# The same package for whoever builds a policy against a build directory that is not installed.
export(EXPORT SluiceTargets NAMESPACE sluice:: FILE "${PROJECT_BINARY_DIR}/package/SluiceTargets.cmake")
file(WRITE "${PROJECT_BINARY_DIR}/package/SluiceConfig.cmake"
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/SluiceTargets.cmake\")\n"
  "include(\"${PROJECT_SOURCE_DIR}/cmake/SluiceAddPolicy.cmake\")\n"
  "set(SLUICE_POLICY_INSTALL_DIR \"${SLUICE_POLICY_INSTALL_DIR}\")\n"
  "set(Sluice_POLICY_DIR \"${PROJECT_BINARY_DIR}/strategies\")\n")
