# Finds LibTorch in the pip wheel: the one that ships with it, find_package(Torch), fails with C++20
# and CMake 3.25 (it asks for CUDA20), and would link the CUDA libraries.
#
# DDPRUN_TORCH_ROOT: the torch package's directory (the one with include/ and lib/). By default the
# cached environment of scripts/lib/torch_env.sh, else what python3 would import.
# Defines TorchCpu_FOUND, TorchCpu_VERSION and the target TorchCpu::TorchCpu (libtorch_cpu, libc10).
set(DDPRUN_TORCH_ROOT "" CACHE PATH "The torch package's directory (with include/ and lib/)")
set(DDPRUN_TORCH_VERSION 2.11.0)  # that of the tests
set(DDPRUN_TORCH_NEWEST 2.15)     # the runtime builds with this and all between

function(_ddprun_torch_candidates result)
  if(DEFINED ENV{DDPRUN_CACHE})
    set(cache $ENV{DDPRUN_CACHE})
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(cache $ENV{XDG_CACHE_HOME}/ddprun)
  else()
    set(cache $ENV{HOME}/.cache/ddprun)
  endif()
  file(GLOB found ${cache}/libtorch/lib/python3*/site-packages/torch
                  ${cache}/py-full/lib/python3*/site-packages/torch)
  # Asks where the package is without importing it, which would take over a second.
  find_program(DDPRUN_PYTHON3 python3)
  if(NOT found AND DDPRUN_PYTHON3)
    execute_process(
      COMMAND ${DDPRUN_PYTHON3} -c
        "import importlib.util as u; print(list(u.find_spec('torch').submodule_search_locations)[0])"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

if(DDPRUN_TORCH_ROOT)
  set(_candidates ${DDPRUN_TORCH_ROOT})
else()
  _ddprun_torch_candidates(_candidates)
endif()

set(TorchCpu_ROOT "")
set(TorchCpu_VERSION "")
foreach(_candidate IN LISTS _candidates)
  set(_version_file ${_candidate}/include/torch/headeronly/version.h)
  if(EXISTS ${_version_file} AND EXISTS ${_candidate}/lib/libtorch_cpu.so)
    file(STRINGS ${_version_file} _line REGEX "^ *\"[0-9.]+\"")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TorchCpu_VERSION "${_line}")
    set(TorchCpu_ROOT ${_candidate})
    break()
  endif()
endforeach()

set(_install "install it with 'scripts/setup', or name the torch package's \
directory by -DDDPRUN_TORCH_ROOT=…, or build without the worker runtime by -DDDPRUN_WORKER=OFF")
if(_ddprun_torch_advice)  # of the package that other projects find
  set(_install ${_ddprun_torch_advice})
endif()
set(_wanted "${DDPRUN_TORCH_VERSION} to ${DDPRUN_TORCH_NEWEST}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _minor "${TorchCpu_VERSION}")
set(_suits FALSE)
if(_ddprun_torch_built_with)  # an installed runtime: classes of LibTorch change from version to version
  set(_wanted ${_ddprun_torch_built_with})
  if(TorchCpu_VERSION VERSION_EQUAL _wanted)
    set(_suits TRUE)
  endif()
elseif(TorchCpu_VERSION VERSION_GREATER_EQUAL DDPRUN_TORCH_VERSION AND _minor VERSION_LESS_EQUAL DDPRUN_TORCH_NEWEST)
  set(_suits TRUE)
endif()
if(NOT TorchCpu_ROOT)
  set(TorchCpu_FOUND FALSE)
  set(_problem "LibTorch ${_wanted} was not found (looked in: ${_candidates}): ${_install}")
elseif(NOT _suits)
  set(TorchCpu_FOUND FALSE)
  set(_problem "LibTorch at ${TorchCpu_ROOT} is version ${TorchCpu_VERSION}, needed is ${_wanted}: ${_install}")
else()
  set(TorchCpu_FOUND TRUE)
endif()
if(NOT TorchCpu_FOUND AND TorchCpu_FIND_REQUIRED)
  message(FATAL_ERROR "${_problem}")
endif()

if(TorchCpu_FOUND AND NOT TARGET TorchCpu::TorchCpu)
  message(STATUS "LibTorch ${TorchCpu_VERSION}: ${TorchCpu_ROOT}")
  add_library(TorchCpu::c10 SHARED IMPORTED)
  set_target_properties(TorchCpu::c10 PROPERTIES IMPORTED_LOCATION ${TorchCpu_ROOT}/lib/libc10.so)
  add_library(TorchCpu::TorchCpu SHARED IMPORTED)
  set_target_properties(TorchCpu::TorchCpu PROPERTIES
    IMPORTED_LOCATION ${TorchCpu_ROOT}/lib/libtorch_cpu.so
    INTERFACE_LINK_LIBRARIES TorchCpu::c10
    INTERFACE_DDPRUN_USES_TORCH ON  # marks targets that link it, directly or not: Static.cmake
    COMPATIBLE_INTERFACE_BOOL DDPRUN_USES_TORCH)
  target_compile_definitions(TorchCpu::TorchCpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC)
  # After every other directory: the wheel ships old copies of protobuf's and others' headers.
  target_compile_options(TorchCpu::TorchCpu INTERFACE
    "SHELL:-idirafter ${TorchCpu_ROOT}/include"
    "SHELL:-idirafter ${TorchCpu_ROOT}/include/torch/csrc/api/include")
endif()
