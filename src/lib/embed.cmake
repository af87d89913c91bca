# libweir.a, libweir.so and weir.pc: Weir inside other programs (weir.h, docs/EMBEDDING.md).
#
# The folders that src/lib reaches become one object, in which ld binds all that they have from one
# another: also malloc and its kin to base/mem.c, so that nobody who links it has to know of --wrap.
# Then all names but weir_* are made local: no function of ours can be taken for one of the program's.
set(WEIR_EMBEDDED lib engine chat chat_jinja chat_reply tokenizer grammar sched kv sample model gguf
    backend backend_cpu backend_device base)
list(TRANSFORM WEIR_EMBEDDED PREPEND weir_)
set(archives)
foreach(target ${WEIR_EMBEDDED})
  list(APPEND archives $<TARGET_FILE:${target}>)
endforeach()
set(object ${CMAKE_BINARY_DIR}/libweir.o)
set(needs ${JANSSON_LINK_LIBRARIES} ${UTF8PROC_LINK_LIBRARIES} ${XXHASH_LINK_LIBRARIES}
    ${CRYPTO_LINK_LIBRARIES} -lm -lpthread -ldl)
set(soname libweir.so.${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# the compiler as it was given, as CC="ccache gcc" with its -m64
separate_arguments(compile UNIX_COMMAND "${CMAKE_C_COMPILER_ARG1}")
list(PREPEND compile ${CMAKE_C_COMPILER})

add_custom_command(OUTPUT libweir.a
  COMMAND ${compile} -r -nostdlib -o ${object} -Wl,--whole-archive $<TARGET_FILE:weir_lib>
          -Wl,--no-whole-archive -Wl,--start-group ${archives} -Wl,--end-group
          $<TARGET_PROPERTY:weir_base,INTERFACE_LINK_OPTIONS>
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=weir_* ${object}
  COMMAND ${CMAKE_COMMAND} -E rm -f libweir.a
  COMMAND ${CMAKE_AR} qcs libweir.a ${object}
  DEPENDS ${WEIR_EMBEDDED} COMMAND_EXPAND_LISTS VERBATIM)
add_custom_command(OUTPUT libweir.so
  COMMAND ${compile} -shared -o libweir.so -Wl,-soname,${soname} -Wl,-Bsymbolic,-z,defs
          ${object} ${needs}
  DEPENDS libweir.a COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(weir_embed ALL DEPENDS libweir.a libweir.so)
# what reaches outside of itself, or is one for each thread, is reached otherwise in a shared library
set_property(SOURCE src/base/mem.c src/base/log.c src/model/build.c APPEND PROPERTY COMPILE_OPTIONS -fPIC)

configure_file(src/lib/weir.pc.in weir.pc @ONLY)

# All of it or none: who built the program alone installs that.
install(CODE "
set(from \"${CMAKE_BINARY_DIR}\")
set(to \"\${CMAKE_INSTALL_PREFIX}\")
if(EXISTS \"\${from}/libweir.so\")
  file(INSTALL DESTINATION \"\${to}/include\" TYPE FILE FILES \"${CMAKE_SOURCE_DIR}/src/lib/weir.h\")
  file(INSTALL DESTINATION \"\${to}/lib/pkgconfig\" TYPE FILE FILES \"\${from}/weir.pc\")
  file(INSTALL DESTINATION \"\${to}/lib\" TYPE FILE FILES \"\${from}/libweir.a\")
  file(INSTALL DESTINATION \"\${to}/lib\" TYPE FILE RENAME ${soname} FILES \"\${from}/libweir.so\")
  file(CREATE_LINK ${soname} \"\$ENV{DESTDIR}\${to}/lib/libweir.so\" SYMBOLIC)
else()
  message(STATUS \"libweir was not built (target weir_embed), and is not installed\")
endif()")
