# libzmq for our libraries and the server: target tnr_zmq, with the folder of zmq.h; zmq.hpp is the distribution's.
# packaging/third_party/libzmq says why the distribution's libzmq.a will not do. Built at the first configure (about
# a minute), then kept for all presets.
set(TNR_THIRD_PARTY ${CMAKE_SOURCE_DIR}/build/third_party CACHE PATH "what is fetched and built from outside, for all presets")

set(zmq_variant plain)
if(TNR_SANITIZE MATCHES thread)
    set(zmq_variant thread)
endif()
execute_process(
    COMMAND ${CMAKE_COMMAND} -E env TNR_THIRD_PARTY=${TNR_THIRD_PARTY} CC=${CMAKE_C_COMPILER} CXX=${CMAKE_CXX_COMPILER}
            ${CMAKE_SOURCE_DIR}/packaging/third_party/libzmq ${zmq_variant}
    OUTPUT_VARIABLE zmq_prefix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

add_library(tnr_zmq INTERFACE)
target_include_directories(tnr_zmq SYSTEM INTERFACE ${zmq_prefix}/include)
target_link_libraries(tnr_zmq INTERFACE ${zmq_prefix}/lib/libzmq.a ${zmq_prefix}/lib/libsodium.a)
