# ddprun_proto_library(name PROTO path [GRPC])
# Compiles one .proto of proto/ into a static library whose generated headers are included as
# "ddprun/<package>/v1/<file>.pb.h". GRPC adds the service stubs. Generated code has no warnings of ours.
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
function(ddprun_proto_library name)
  cmake_parse_arguments(ARG "GRPC" "PROTO" "" ${ARGN})
  get_filename_component(dir ${ARG_PROTO} DIRECTORY)
  get_filename_component(stem ${ARG_PROTO} NAME_WE)
  set(out ${CMAKE_BINARY_DIR}/generated)
  set(base ${out}/${dir}/${stem})
  set(outputs ${base}.pb.cc ${base}.pb.h)
  set(grpc_args)
  if(ARG_GRPC)
    list(APPEND outputs ${base}.grpc.pb.cc ${base}.grpc.pb.h)
    set(grpc_args --grpc_out=${out} --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN})
  endif()
  file(MAKE_DIRECTORY ${out})
  add_custom_command(
    OUTPUT ${outputs}
    COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}/proto --cpp_out=${out} ${grpc_args} ${ARG_PROTO}
    DEPENDS ${CMAKE_SOURCE_DIR}/proto/${ARG_PROTO}
    VERBATIM)
  add_library(${name} ${ddprun_library_type} ${outputs})
  set_target_properties(${name} PROPERTIES DEFINE_SYMBOL "")
  if(DDPRUN_SANITIZE)  # not ours to test: it compiles in a third of the time, watched for wrong memory only
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
  endif()
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-Os>)
  target_include_directories(${name} SYSTEM PUBLIC $<BUILD_INTERFACE:${out}>)
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf)
  if(ARG_GRPC)
    target_link_libraries(${name} PUBLIC gRPC::grpc++)
  endif()
endfunction()
