# libzmq for our libraries and the server.
find_library(TNR_ZMQ_LIBRARY zmq REQUIRED)
add_library(tnr_zmq INTERFACE)
target_link_libraries(tnr_zmq INTERFACE ${TNR_ZMQ_LIBRARY})
