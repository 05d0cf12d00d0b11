# Runs examples/measure.c as its comment says and looks at what it prints.
file(REMOVE_RECURSE ${SCRATCH})
execute_process(COMMAND ${PROGRAM} ${SOURCE}/models/tiny ${SCRATCH}
        prose=${SOURCE}/examples/text/prose.txt code=${SOURCE}/examples/text/code.txt
    RESULT_VARIABLE status OUTPUT_VARIABLE printed ERROR_VARIABLE said)
file(REMOVE_RECURSE ${SCRATCH})
if(NOT status EQUAL 0)
    message(FATAL_ERROR "status ${status}: ${said}")
endif()
foreach(part "mamba: 8 layers" "In the beginning " "layer 7: migration gap 0\\.[0-9]+"
        "half of the state: perplexity [+-][0-9.]+ \\(95 % ")
    if(NOT printed MATCHES "${part}")
        message(FATAL_ERROR "the example does not print ${part}: ${printed}")
    endif()
endforeach()
execute_process(COMMAND ${PROGRAM} ${SOURCE}/nothing ${SCRATCH} text RESULT_VARIABLE status
    ERROR_VARIABLE said)
if(NOT status EQUAL 3 OR NOT said MATCHES "nothing: no such file")
    message(FATAL_ERROR "a missing model: status ${status}: ${said}")
endif()
