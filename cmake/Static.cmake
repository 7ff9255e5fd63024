# -DDDPRUN_STATIC=ON: everything but glibc becomes part of the program, so that one file runs on other distributions and
# starts sooner (the release build, the wheel, the Debian package; docs/decisions/0033). Debian's CMake packages and pkg-config name the shared libraries; their
# archives lie beside them.

# ddprun_static_target(target): an imported library becomes the archive beside it, where there is one.
function(ddprun_static_target target)
  get_target_property(type ${target} TYPE)
  if(type MATCHES "SHARED_LIBRARY|UNKNOWN_LIBRARY")
    _ddprun_static_property(${target} IMPORTED_LOCATION)
    foreach(configuration NONE RELEASE RELWITHDEBINFO)
      _ddprun_static_property(${target} IMPORTED_LOCATION_${configuration})
    endforeach()
  endif()
  _ddprun_static_property(${target} INTERFACE_LINK_LIBRARIES)
endfunction()

function(_ddprun_static_property target property)
  get_target_property(values ${target} ${property})
  if(NOT values)
    return()
  endif()
  set(result)
  foreach(value IN LISTS values)
    if(value MATCHES "^(/.*)\\.so[.0-9]*$")
      foreach(archive ${CMAKE_MATCH_1}.a ${CMAKE_MATCH_1}_a.a)
        if(EXISTS ${archive})
          set(value ${archive})
          break()
        endif()
      endforeach()
    endif()
    if(value MATCHES "^(-l)?atomic$")
      set(value -l:libatomic.a)
    endif()
    list(APPEND result ${value})
  endforeach()
  set_target_properties(${target} PROPERTIES ${property} "${result}")
endfunction()

# ddprun_leave_out_parts(target): a program has no part of another library that cmake/left_out.txt names. Its own code has
# what takes their place (launcher/cli/left_out.cc). Requires: GNU ld.
function(ddprun_leave_out_parts target)
  set(list ${CMAKE_SOURCE_DIR}/cmake/left_out.txt)
  file(STRINGS ${list} lines REGEX "^[a-z]")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([a-z]+) ([A-Za-z0-9_]+)$" matched "${line}")
    target_link_options(${target} PRIVATE -Wl,--defsym=${CMAKE_MATCH_2}=ddprun_left_out_${CMAKE_MATCH_1})
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  set(script ${CMAKE_SOURCE_DIR}/cmake/left_out.ld)
  target_link_options(${target} PRIVATE -Wl,-T,${script})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
endfunction()

if(DDPRUN_STATIC)
  get_property(_targets DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTY IMPORTED_TARGETS)
  foreach(_target IN LISTS _targets)
    ddprun_static_target(${_target})
  endforeach()
  # The archives' order is left to the linker (mold, lld): Debian's targets were written for shared libraries.
  # libuv's and SQLite's archives need what their shared libraries bring along.
  set_property(TARGET PkgConfig::UV APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${CMAKE_DL_LIBS} Threads::Threads)
  set_property(TARGET PkgConfig::SQLITE APPEND PROPERTY INTERFACE_LINK_LIBRARIES m Threads::Threads ${CMAKE_DL_LIBS})
  # OpenSSL of Debian 13 compresses with zstd, that of Debian 12 does not.
  find_library(DDPRUN_ZSTD libzstd.a)
  if(DDPRUN_ZSTD)
    set_property(TARGET OpenSSL::Crypto APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${DDPRUN_ZSTD})
  endif()
  # Programs of LibTorch, which has the shared one, mustn't have two.
  add_link_options("$<$<NOT:$<BOOL:$<TARGET_PROPERTY:DDPRUN_USES_TORCH>>>:-static-libstdc++;-static-libgcc>")
  add_link_options(-Wl,--gc-sections)  # of the archives' inline functions, half a megabyte
  # Debian has no archives of spdlog and fmt.
  set(DDPRUN_SPDLOG spdlog::spdlog_header_only)
  set_property(TARGET spdlog::spdlog_header_only PROPERTY INTERFACE_LINK_LIBRARIES fmt::fmt-header-only Threads::Threads)
else()
  set(DDPRUN_SPDLOG spdlog::spdlog)
endif()
