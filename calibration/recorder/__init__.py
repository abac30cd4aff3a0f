"""Recording of a live vLLM server, from inside and without patching it: a scheduler class and a worker class.

Nothing outside this folder and the standard library is imported (vLLM and torch are there when the server runs), so
that a copy of the folder on PYTHONPATH is enough and the server's other packages stay what they are:

    SERVECAST_RECORD=DIR/calib PYTHONPATH=COPY vllm serve ... \
        --scheduler-cls servecast_recorder.scheduler.RecordingScheduler \
        --worker-cls servecast_recorder.worker.RecordingWorker

`calibration.recorder_setup` makes the copy and the two settings.  ``DIR/calib.steps.jsonl`` gets the steps
(`scheduler`), ``DIR/calib.gpu.jsonl`` the GPU times (`worker`).  Versions tried: 0.24 and 0.32.
"""
