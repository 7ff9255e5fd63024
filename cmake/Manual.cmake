# The manual page and the completion: made of the program's own --help, so they are never out of date.
set(DDPRUN_MANUAL ${CMAKE_BINARY_DIR}/manual)
add_custom_command(
  OUTPUT ${DDPRUN_MANUAL}/ddprun.1 ${DDPRUN_MANUAL}/ddprun.bash ${DDPRUN_MANUAL}/_ddprun
  COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/cmake/manual.py $<TARGET_FILE:ddprun> ${DDPRUN_MANUAL}
  DEPENDS ddprun ${CMAKE_SOURCE_DIR}/cmake/manual.py
  VERBATIM)
set(all ALL)
if(DDPRUN_SANITIZE)
  set(all)  # such programs are tested, not installed
endif()
add_custom_target(ddprun_manual ${all}
  DEPENDS ${DDPRUN_MANUAL}/ddprun.1 ${DDPRUN_MANUAL}/ddprun.bash ${DDPRUN_MANUAL}/_ddprun)

install(FILES ${DDPRUN_MANUAL}/ddprun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${DDPRUN_MANUAL}/ddprun.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME ddprun COMPONENT program)
install(FILES ${DDPRUN_MANUAL}/_ddprun DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
