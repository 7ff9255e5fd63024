# ddprun_mutated_sources(OUT LIST LIBRARY…): the sources of these libraries with the bugs of LIST (a file like mutants.toml) in
# them, all asleep. Objects of them come before the libraries when they are linked, so nothing of those is taken.
set(ddprun_mutate ${CMAKE_CURRENT_LIST_DIR}/mutate.py)

function(ddprun_mutated_sources out list)
  set(all)
  foreach(library ${ARGN})
    get_target_property(sources ${library} SOURCES)
    get_target_property(folder ${library} SOURCE_DIR)
    set(mutated_folder ${CMAKE_CURRENT_BINARY_DIR}/mutated/${library})
    list(TRANSFORM sources PREPEND ${mutated_folder}/ OUTPUT_VARIABLE outputs)
    list(TRANSFORM sources PREPEND ${folder}/)
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND Python3::Interpreter ${ddprun_mutate} ${folder} ${mutated_folder} ${list}
      DEPENDS ${sources} ${ddprun_mutate} ${list}
      COMMENT "Putting mutants into ${folder}")
    list(APPEND all ${outputs})
  endforeach()
  set(${out} ${all} PARENT_SCOPE)
endfunction()
