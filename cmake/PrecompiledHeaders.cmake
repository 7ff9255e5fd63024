# Large foreign headers, parsed once for all units that include them. A unit still includes what it uses: with
# -DDDPRUN_PRECOMPILE=OFF, and in the suite static, nothing is precompiled.
option(DDPRUN_PRECOMPILE "Parse LibTorch's and GoogleTest's headers once for all units" ON)

# GCC refuses headers that were compiled with other options, so all units that share some are compiled as position-independent
# code, with threads (as libuv's users are). -fpch-preprocess is for ccache, which must see through the precompiled header.
set(ddprun_precompile_options -fPIC -pthread $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)

# ddprun_precompiled(name DEPS … HEADERS … [OPTIONS …]): defines precompiled headers for ddprun_precompile().
function(ddprun_precompiled name)
  cmake_parse_arguments(ARG "" "" "DEPS;HEADERS;OPTIONS" ${ARGN})
  if(NOT DDPRUN_PRECOMPILE)
    return()
  endif()
  set(empty ${CMAKE_BINARY_DIR}/generated/${name}.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "// Nothing: CMake gives precompiled headers to those that compile something.\n")
  add_library(${name} OBJECT ${empty})
  target_link_libraries(${name} PRIVATE ddprun_options ${ARG_DEPS})
  target_compile_options(${name} PRIVATE ${ddprun_precompile_options} ${ARG_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    set_target_properties(${name} PROPERTIES
      CXX_COMPILER_LAUNCHER "${CMAKE_SOURCE_DIR}/cmake/pch_sum.sh;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()

# ddprun_precompile(name target…): these targets use the precompiled headers of `name`.
function(ddprun_precompile name)
  if(NOT TARGET ${name})
    return()
  endif()
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM ${name})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # -fPIE
    endif()
    target_compile_options(${target} PRIVATE ${ddprun_precompile_options})
  endforeach()
endfunction()
