# cmake --install: the program ddprun, and the runtime for other projects' find_package(ddprun)
# (docs/CPP.md).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS ddprun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(DDPRUN_WORKER)
  set(_ddprun_libraries ${CMAKE_INSTALL_LIBDIR}/ddprun)
  set(_ddprun_package ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)

  # ddprun::worker, and what it is made of.
  set_target_properties(ddprun_worker PROPERTIES EXPORT_NAME worker)
  target_compile_features(ddprun_worker INTERFACE cxx_std_20)
  install(TARGETS ddprun_worker ddprun_worker_client ddprun_worker_cuda ddprun_worker_env ddprun_worker_metrics
                  ddprun_worker_shm ddprun_base ddprun_base_core ddprun_agent_proto ddprun_tensorboard_proto
    EXPORT ddprun
    ARCHIVE DESTINATION ${_ddprun_libraries}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${CMAKE_INSTALL_INCLUDEDIR}/ddprun/internal)
  install(EXPORT ddprun NAMESPACE ddprun:: FILE ddprunTargets.cmake DESTINATION ${_ddprun_package})

  # The public headers, and those of ours that they include.
  install(DIRECTORY worker/include/ddprun DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES base/progress_page.h base/status_macros.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddprun/internal/base)

  # Loaded where there are GPUs.
  foreach(plugin ddprun_cuda ddprun_nccl)
    if(TARGET ${plugin})
      install(TARGETS ${plugin} LIBRARY DESTINATION ${_ddprun_libraries})
    endif()
  endforeach()

  configure_package_config_file(cmake/ddprunConfig.cmake.in ${CMAKE_BINARY_DIR}/ddprunConfig.cmake
    INSTALL_DESTINATION ${_ddprun_package}
    PATH_VARS _ddprun_libraries)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/ddprunConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/ddprunConfig.cmake ${CMAKE_BINARY_DIR}/ddprunConfigVersion.cmake
                ${CMAKE_SOURCE_DIR}/cmake/FindTorchCpu.cmake
    DESTINATION ${_ddprun_package})
endif()
