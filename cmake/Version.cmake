# base/version.h: the version, stamped from project(VERSION).
configure_file(${CMAKE_SOURCE_DIR}/cmake/version.h.in ${CMAKE_BINARY_DIR}/generated/base/version.h @ONLY)
