# Copies the OpenBLAS of the Python package scipy-openblas32 to `<package>/_openblas/`, where the
# engine opens it at run time. It is never linked.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util as u; print(u.find_spec('scipy_openblas32').submodule_search_locations[0])"
  OUTPUT_VARIABLE openblas_package OUTPUT_STRIP_TRAILING_WHITESPACE)
# Beside the library itself: the Fortran run time, in the versions of the package that bring it.
file(GLOB openblas_libraries ${openblas_package}/lib/lib*.so* ${openblas_package}.libs/lib*.so*
     ${openblas_package}/lib/lib*.dylib)
set(openblas_copies "")
foreach(library ${openblas_libraries})
  get_filename_component(name ${library} NAME)
  set(copy ${MITHRIL_PACKAGE_DIR}/_openblas/${name})
  add_custom_command(OUTPUT ${copy} DEPENDS ${library}
                     COMMAND ${CMAKE_COMMAND} -E copy_if_different ${library} ${copy}
                     COMMAND ${CMAKE_COMMAND} -E touch ${copy})
  list(APPEND openblas_copies ${copy})
endforeach()
add_custom_target(mithril_openblas ALL DEPENDS ${openblas_copies})
