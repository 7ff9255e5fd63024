# ddprun_proto_library(name PROTO path [GRPC])
# Compiles one .proto of proto/ into a static library whose generated headers are included as
# "ddprun/<package>/v1/<file>.pb.h". GRPC adds the service stubs. Generated code has no warnings of ours.
# With DDPRUN_LITE the messages have no reflection, so that a program needs only Protobuf's smaller runtime.
option(DDPRUN_LITE "Generate messages without reflection (the wheel; tests need it)" OFF)
set(ddprun_cpp_out)
if(DDPRUN_LITE)
  set(ddprun_cpp_out lite:)
endif()
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
    COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}/proto --cpp_out=${ddprun_cpp_out}${out} ${grpc_args} ${ARG_PROTO}
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

# ddprun_message_fields(target header proto message…): a generated header, included as `header`, with VisitFields() for these
# messages of proto/ and those that they have (cmake/message_fields.py).
function(ddprun_message_fields target header proto)
  set(out ${CMAKE_BINARY_DIR}/generated/${header})
  set(words)
  foreach(message IN LISTS ARGN)
    list(APPEND words ${CMAKE_SOURCE_DIR}/proto/${proto} ${message})
  endforeach()
  cmake_path(GET out PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${out}
    COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/cmake/message_fields.py ${out} ${words}
    DEPENDS ${CMAKE_SOURCE_DIR}/cmake/message_fields.py ${CMAKE_SOURCE_DIR}/scripts/lib/proto_fields.py
            ${CMAKE_SOURCE_DIR}/proto/${proto}
    VERBATIM)
  target_sources(${target} PRIVATE ${out})
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()
