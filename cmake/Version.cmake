# The version, stamped from project(VERSION), in a file of its own.
configure_file(${CMAKE_SOURCE_DIR}/base/version.cc.in ${CMAKE_BINARY_DIR}/generated/base/version.cc @ONLY)

# ddprun_stamp_build(target): compiles the facts of launcher/cli/version_text.h into a program. Each build asks git. The file
# changes only with the answer, and no library has it, so that a commit costs one small file and one link.
function(ddprun_stamp_build target)
  set(source ${CMAKE_BINARY_DIR}/generated/launcher/cli/build_facts.cc)
  if(NOT TARGET ddprun_build_facts)
    add_custom_target(ddprun_build_facts BYPRODUCTS ${source}
      COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DTEMPLATE=${CMAKE_SOURCE_DIR}/launcher/cli/build_facts.cc.in
              -DOUT=${source} -P ${CMAKE_SOURCE_DIR}/cmake/Commit.cmake
      COMMENT "Asking git for the commit" VERBATIM)
  endif()
  set_source_files_properties(${source} PROPERTIES GENERATED ON SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
  add_dependencies(${target} ddprun_build_facts)
endfunction()
