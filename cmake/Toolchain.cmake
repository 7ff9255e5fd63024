# Compiler launcher, linker, warnings and sanitizers for every target of ours.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this, ccache leaves units with precompiled headers to the compiler.
  set(ddprun_ccache_environment CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime CCACHE_PCH_EXTSUM=1)
  if(CMAKE_UNITY_BUILD)
    list(APPEND ddprun_ccache_environment CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${ddprun_ccache_environment} ${CCACHE_PROGRAM})
endif()
if(CMAKE_UNITY_BUILD)
  # Joined files are for running, not for a debugger's breakpoints: they don't say in which folder they were compiled, so that
  # ccache knows them again in another clone.
  add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
endif()

find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# The warnings and the hardening of all our own code; dependencies are SYSTEM.
add_library(ddprun_options INTERFACE)
target_compile_options(ddprun_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wswitch-enum -Wnon-virtual-dtor -Wold-style-cast -Werror
  # A designated initializer leaves the rest at their defaults on purpose.
  -Wno-missing-field-initializers
  # gcc 12 at -O2 sees uninitialised members in the alternatives that a std::variant doesn't hold.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
target_include_directories(ddprun_options INTERFACE ${CMAKE_SOURCE_DIR})

if(DDPRUN_SANITIZE)
  add_compile_options(-fsanitize=${DDPRUN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DDPRUN_SANITIZE})
endif()

# Under AddressSanitizer a hundred test programs would each have a copy of the tested code, of up to 120 MB: they share it
# instead.
set(ddprun_library_type STATIC)
if(DDPRUN_SANITIZE MATCHES "^address" AND NOT DDPRUN_FUZZ)
  set(ddprun_library_type SHARED)
endif()

# ddprun_library(name [STATIC] SOURCES … [DEPS …] [PRIVATE_DEPS …])
# A library of ours with the project's warnings. Link visibility is the layering: what is not
# in DEPS can't be included from headers, what is in neither can't be used at all. STATIC: it has to be part of each program.
function(ddprun_library name)
  cmake_parse_arguments(ARG "STATIC" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  set(type ${ddprun_library_type})
  if(ARG_STATIC)
    set(type STATIC)
  endif()
  add_library(${name} ${type} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES DEFINE_SYMBOL "")  # one command for both types, so that ccache knows it
  target_link_libraries(${name} PUBLIC ${ARG_DEPS}
    PRIVATE $<BUILD_INTERFACE:ddprun_options> ${ARG_PRIVATE_DEPS})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
endfunction()

# ddprun_small(): the libraries of this folder and those below are compiled for size in optimized builds: two thirds of what -O2 makes.
function(ddprun_small)
  set_property(DIRECTORY APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:RelWithDebInfo>:-Os>)
endfunction()

# ddprun_executable(name SOURCES … DEPS …): a program in bin/.
function(ddprun_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ddprun_options ${ARG_DEPS})
endfunction()
