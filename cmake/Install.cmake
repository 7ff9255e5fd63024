# cmake --install: the program ddprun, and the runtime for other projects' find_package(ddprun)
# (docs/CPP.md).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(SKBUILD)  # the wheel: bin and share of the environment that it is installed into
  set(CMAKE_INSTALL_BINDIR ${SKBUILD_SCRIPTS_DIR})
  set(CMAKE_INSTALL_MANDIR ${SKBUILD_DATA_DIR}/share/man)
  set(CMAKE_INSTALL_DATADIR ${SKBUILD_DATA_DIR}/share)
endif()

# Runs before any file is installed.
install(CODE "
  if(NOT EXISTS \"${CMAKE_BINARY_DIR}/manual/ddprun.1\" OR NOT EXISTS \"$<TARGET_FILE:ddprun>\")
    message(FATAL_ERROR \"not all is built that is installed; first: cmake --build '${CMAKE_BINARY_DIR}' --target installable\")
  endif()" COMPONENT program)
install(TARGETS ddprun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
include(Manual)         # manual page and completion
# Licences: ours, and those of the libraries that are linked in.
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ddprun COMPONENT program)
if(DDPRUN_STATIC)
  file(STRINGS cmake/linked_libraries.txt lines REGEX "^[a-z]")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^[^ ]+" package "${line}")
    install(FILES /usr/share/doc/${package}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ddprun/copyright
      RENAME ${package} COMPONENT program)
  endforeach()
endif()
# All targets of an installation; after scripts/demo only a part of them is built.
add_custom_target(installable DEPENDS ddprun ddprun_manual)

# The modules for training scripts and for Python launchers: nothing but the standard library.
install(DIRECTORY python/ddprun python/ddprun_torch DESTINATION lib/python3/dist-packages COMPONENT python
  PATTERN __pycache__ EXCLUDE)
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/python3-ddprun COMPONENT python)

if(DDPRUN_WORKER)
  set(_ddprun_libraries ${CMAKE_INSTALL_LIBDIR}/ddprun)
  set(_ddprun_package ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)

  # ddprun::worker and its parts.
  set_target_properties(ddprun_worker PROPERTIES EXPORT_NAME worker)
  target_compile_features(ddprun_worker INTERFACE cxx_std_20)
  set(_ddprun_runtime ddprun_worker ddprun_worker_client ddprun_worker_data ddprun_worker_data_core
      ddprun_worker_env ddprun_worker_metrics ddprun_worker_options ddprun_worker_shm ddprun_base ddprun_base_core ddprun_yaml
      ddprun_agent_proto ddprun_tensorboard_proto)
  install(TARGETS ${_ddprun_runtime}
    EXPORT ddprun
    ARCHIVE DESTINATION ${_ddprun_libraries} COMPONENT runtime
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${CMAKE_INSTALL_INCLUDEDIR}/ddprun/internal)
  # Each by its name: a static library doesn't build those that it is linked with (CMAKE_OPTIMIZE_DEPENDENCIES).
  add_dependencies(installable ${_ddprun_runtime})
  install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ddprun-dev COMPONENT runtime)
  install(EXPORT ddprun NAMESPACE ddprun:: FILE ddprunTargets.cmake DESTINATION ${_ddprun_package}
    COMPONENT runtime)

  # The public headers, and those of ours that they include.
  install(DIRECTORY worker/include/ddprun DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
  install(FILES base/abseil_release.h base/progress_page.h base/status_macros.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddprun/internal/base COMPONENT runtime)

  # Loaded on machines with GPUs.
  if(TARGET ddprun_nccl)
    add_dependencies(installable ddprun_nccl)
    install(TARGETS ddprun_nccl LIBRARY DESTINATION ${_ddprun_libraries} COMPONENT runtime)
  endif()

  # The torch that worker/torch has found.
  foreach(_variable TorchCpu_ROOT TorchCpu_VERSION)
    get_directory_property(${_variable} DIRECTORY ${CMAKE_SOURCE_DIR}/worker/torch DEFINITION ${_variable})
  endforeach()
  configure_package_config_file(cmake/ddprunConfig.cmake.in ${CMAKE_BINARY_DIR}/ddprunConfig.cmake
    INSTALL_DESTINATION ${_ddprun_package}
    PATH_VARS _ddprun_libraries)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/ddprunConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/ddprunConfig.cmake ${CMAKE_BINARY_DIR}/ddprunConfigVersion.cmake
                ${CMAKE_SOURCE_DIR}/cmake/FindTorchCpu.cmake
    DESTINATION ${_ddprun_package} COMPONENT runtime)
endif()

include(Package)        # cpack
