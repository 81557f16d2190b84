# What every target of ours is compiled with. Link it with `target_link_libraries(x PRIVATE tnr_options)`.
option(TNR_TESTS "build the tests" ON)
set(TNR_SANITIZE "" CACHE STRING "sanitizers for the whole build: `address,undefined` or `thread`")

find_package(Threads REQUIRED)
add_library(tnr_options INTERFACE)
target_include_directories(tnr_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(tnr_options INTERFACE -Wall -Wextra -Werror)
target_link_libraries(tnr_options INTERFACE Threads::Threads)
if(TNR_SANITIZE)
    add_compile_options(-fsanitize=${TNR_SANITIZE} -fno-omit-frame-pointer -g)
    add_link_options(-fsanitize=${TNR_SANITIZE})
endif()
