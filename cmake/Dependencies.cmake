# Debian 12's versions are the floor. All headers come in as SYSTEM.
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
# RE2, as gRPC's configuration names it. That one would ask pkg-config for the whole, which takes minutes since RE2 needs Abseil:
# it reads the files of Abseil's parts anew for each way to them.
find_library(DDPRUN_RE2 re2 REQUIRED)
execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --print-requires re2 COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE _needed)
string(REGEX REPLACE "absl_([a-z0-9_]+)[^\n]*\n" "absl::\\1;" _needed "${_needed}")
add_library(re2::re2 UNKNOWN IMPORTED)
set_target_properties(re2::re2 PROPERTIES IMPORTED_LOCATION ${DDPRUN_RE2} INTERFACE_LINK_LIBRARIES "${_needed};Threads::Threads")
set(re2_FOUND TRUE)
find_package(gRPC CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
set(DDPRUN_YAML_CPP yaml-cpp)
if(TARGET yaml-cpp::yaml-cpp)  # from version 0.8
  set(DDPRUN_YAML_CPP yaml-cpp::yaml-cpp)
endif()
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)  # makes the manual page
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent_extra libevent_core libevent_pthreads)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
pkg_check_modules(HWLOC REQUIRED hwloc>=2.1)
if(DDPRUN_TESTS)
  find_package(GTest REQUIRED)
endif()
if(DDPRUN_BENCH)
  find_package(benchmark REQUIRED)
endif()

# Containers of newer Abseils have further members under AddressSanitizer, which Debian's library lacks (also
# tests/support/CMakeLists.txt).
if(DDPRUN_SANITIZE MATCHES "address" AND absl_VERSION VERSION_GREATER_EQUAL 20230000)
  add_compile_definitions(NDEBUG_SANITIZER)
endif()
# With UBSan's checks of pointers GCC doesn't know that a function's address is never null (https://gcc.gnu.org/PR71962), and
# containers of newer Abseils don't compile. AddressSanitizer finds the use of a null pointer, too.
if(DDPRUN_SANITIZE MATCHES "undefined")
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS "-std=c++20 -fsanitize=${DDPRUN_SANITIZE}")
  set(CMAKE_REQUIRED_LIBRARIES absl::flat_hash_set)
  check_cxx_source_compiles("#include <string>
    #include <absl/container/flat_hash_set.h>
    int main() { return absl::flat_hash_set<std::string>{\"a\"}.contains(\"b\"); }" DDPRUN_ABSEIL_WITH_CHECKED_POINTERS)
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(NOT DDPRUN_ABSEIL_WITH_CHECKED_POINTERS)
    add_compile_options(-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()
