# tests/cpp/**/*.cc is one binary, `mithril_tests`; files that do not end in _test.cc are support.
enable_testing()
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cpp/*.cc)
add_executable(mithril_tests ${test_sources})
target_include_directories(mithril_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests/cpp)
target_compile_definitions(mithril_tests PRIVATE
                           MITHRIL_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/cpp")
target_link_libraries(mithril_tests PRIVATE mithril_engine GTest::gtest_main GTest::gmock)
# What float64 is measured against; clang has not got its header.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(mithril_tests PRIVATE MITHRIL_QUADMATH)
  target_link_libraries(mithril_tests PRIVATE quadmath)
endif()
# Compiled apart, as in engine.cmake: their helpers and fixtures have names of other files.
set(tests_apart ${test_sources})
list(FILTER tests_apart INCLUDE REGEX
     "tests/cpp/(backends/|emit/|(.*/)?(expand|plan|fold_hosts|cond_gradient|serialize|property|text|scan|region)_test[.])")
set_source_files_properties(${tests_apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# The build for Python users leaves it out of `all`; ask for the target by name.
set_target_properties(mithril_tests PROPERTIES EXCLUDE_FROM_ALL ${MITHRIL_PYTHON})
add_test(NAME mithril_tests COMMAND mithril_tests)
