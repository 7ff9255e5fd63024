# -DDDPRUN_GLIBC=2.28: the program runs with that glibc, too (the wheel; docs/decisions/0033). Compiled and linked as ever, but
# against that version's symbols, which ziglang has (from PyPI, as a package of the Python that runs CMake's scripts), and
# with base/glibc for what that version lacks.

# ddprun_link_with_old_glibc(target): links a target this way. Its archives are in a group, which the caller closes.
function(ddprun_link_with_old_glibc target)
  set(stubs ${CMAKE_BINARY_DIR}/glibc-${DDPRUN_GLIBC})
  add_custom_command(OUTPUT ${stubs}/libc.so
    COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/cmake/glibc_stubs.py ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu.${DDPRUN_GLIBC} ${stubs}
    DEPENDS ${CMAKE_SOURCE_DIR}/cmake/glibc_stubs.py
    COMMENT "Making the libraries of glibc ${DDPRUN_GLIBC} to link with" VERBATIM)
  add_custom_target(${target}_glibc_stubs DEPENDS ${stubs}/libc.so)
  add_dependencies(${target} ${target}_glibc_stubs)
  target_link_libraries(${target} PRIVATE ddprun_glibc_exports)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${stubs}/libc.so)
  # -B: where gcc finds Scrt1.o. Threads, dlopen() and clocks were libraries of their own.
  target_link_options(${target} PRIVATE -B${stubs} -L${stubs})
  string(APPEND CMAKE_CXX_STANDARD_LIBRARIES " -Wl,--as-needed -lpthread -ldl -lrt -lresolv")
  set(CMAKE_CXX_STANDARD_LIBRARIES "${CMAKE_CXX_STANDARD_LIBRARIES}" PARENT_SCOPE)
endfunction()
