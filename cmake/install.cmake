# What `cmake --install` puts where. Every path is below the prefix, so that --prefix and DESTDIR
# move the whole tree; the program finds its data beside itself.
install(TARGETS ssmscope_static ssmscope_shared
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/ssmscope DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
if(TARGET ssmscope_program)
    install(TARGETS ssmscope_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Written at install time, when the prefix is known for certain.
install(CODE "set(version \"${PROJECT_VERSION}\")
    set(description \"${PROJECT_DESCRIPTION}\")
    set(libdir \"${CMAKE_INSTALL_LIBDIR}\")
    set(includedir \"${CMAKE_INSTALL_INCLUDEDIR}\")
    get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    configure_file(\"${CMAKE_CURRENT_SOURCE_DIR}/cmake/ssmscope.pc.in\"
        \"${CMAKE_CURRENT_BINARY_DIR}/ssmscope.pc\" @ONLY)")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ssmscope.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The built-in models, with the licences of what they were trained on.
install(DIRECTORY models/tiny models/tiny2 DESTINATION ${CMAKE_INSTALL_DATADIR}/ssmscope/models OPTIONAL)

# The man page and the completion are printed by the program, from the tables that its parser reads.
if(TARGET ssmscope_program AND NOT SSM_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    add_custom_command(OUTPUT ssmscope.1
        COMMAND ssmscope_program help --man > ssmscope.1 DEPENDS ssmscope_program VERBATIM)
    add_custom_command(OUTPUT ssmscope.bash
        COMMAND ssmscope_program completion bash > ssmscope.bash DEPENDS ssmscope_program VERBATIM)
    add_custom_target(ssmscope_pages ALL DEPENDS ssmscope.1 ssmscope.bash)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ssmscope.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ssmscope.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ssmscope)
endif()
install(FILES LICENSE NOTICE README.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
# The pages that README.md links to.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN ssmscope.1 EXCLUDE)
install(FILES models/tiny/CARD.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/models/tiny)
install(FILES models/tiny2/CARD.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/models/tiny2)
